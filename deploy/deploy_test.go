package deploy_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	topologyapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	err := errors.Join(clientgoscheme.AddToScheme(scheme), apiextensions.AddToScheme(scheme),
		topologyapi.AddToScheme(scheme), policyapi.AddToScheme(scheme))
	if err != nil {
		t.Fatal(err)
	}
	return scheme
}

// load strictly decodes the documents in a file: unknown and duplicate fields are errors.
func load(t *testing.T, path string) []runtime.Object {
	t.Helper()
	decoder := serializer.NewCodecFactory(newScheme(t), serializer.EnableStrict).UniversalDeserializer()
	var objects []runtime.Object
	for i, document := range documents(t, path) {
		object, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			t.Errorf("%s, document %d: %v", path, i+1, err)
			continue
		}
		objects = append(objects, object)
	}
	return objects
}

// documents returns the YAML documents in a file, except documents that contain only comments.
func documents(t *testing.T, path string) [][]byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var documents [][]byte
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return documents
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		var content any
		if err := yaml.Unmarshal(document, &content); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if content != nil {
			documents = append(documents, document)
		}
	}
}

// find returns the only object of type T in a file.
func find[T runtime.Object](t *testing.T, path string) T {
	t.Helper()
	found := all[T](load(t, path))
	if len(found) != 1 {
		t.Fatalf("%s has %d objects of type %T, want 1", path, len(found), *new(T))
	}
	return found[0]
}

// all returns the objects of type T.
func all[T runtime.Object](objects []runtime.Object) []T {
	var found []T
	for _, object := range objects {
		if object, ok := object.(T); ok {
			found = append(found, object)
		}
	}
	return found
}

func files(t *testing.T, patterns ...string) []string {
	t.Helper()
	var files []string
	for _, pattern := range patterns {
		matches, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, matches...)
	}
	files = slices.DeleteFunc(files, func(file string) bool { return file == "kustomization.yaml" })
	slices.Sort(files)
	return files
}

func TestManifestsDecode(t *testing.T) {
	for _, file := range files(t, "*.yaml", "crds/*.yaml", "samples/*.yaml", "samples/examples/*.yaml") {
		t.Run(file, func(t *testing.T) {
			if len(load(t, file)) == 0 {
				t.Error("the file has no objects")
			}
		})
	}
}

func TestKustomizationHasEveryManifest(t *testing.T) {
	data, err := os.ReadFile("kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var kustomization struct {
		metav1.TypeMeta `json:",inline"`
		Resources       []string `json:"resources"`
	}
	if err := yaml.UnmarshalStrict(data, &kustomization); err != nil {
		t.Fatal(err)
	}
	listed := slices.Clone(kustomization.Resources)
	slices.Sort(listed)
	if diff := cmp.Diff(files(t, "*.yaml", "crds/*.yaml"), listed); diff != "" {
		t.Errorf("kustomization lists the wrong resources (-files +listed):\n%s", diff)
	}
}

// TestCRDsAreThoseOfTheTypes compares the kinds in the code with the installed definitions.
func TestCRDsAreThoseOfTheTypes(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(topologyapi.AddToScheme(scheme), policyapi.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	var want []string
	for kind := range scheme.KnownTypes(topologyapi.GroupVersion()) {
		if _, isList := scheme.KnownTypes(topologyapi.GroupVersion())[kind+"List"]; isList {
			want = append(want, kind)
		}
	}
	slices.Sort(want)
	var got []string
	for _, file := range files(t, "crds/*.yaml") {
		crd := find[*apiextensions.CustomResourceDefinition](t, file)
		got = append(got, crd.Spec.Names.Kind)
		name := fmt.Sprintf("crds/%s_%s.yaml", topologyapi.GroupVersion().Group, strings.ToLower(crd.Spec.Names.Plural))
		if file != name || crd.Spec.Scope != apiextensions.ClusterScoped {
			t.Errorf("%s: want file name %s and scope Cluster, got %s", file, name, crd.Spec.Scope)
		}
		version := crd.Spec.Versions[0] // TestVersions checks that the other versions are the same
		if version.Name != topologyapi.GroupVersion().Version || version.Subresources == nil ||
			version.Subresources.Status == nil {
			t.Errorf("%s: want %s as the first version, with status as a subresource",
				file, topologyapi.GroupVersion().Version)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong kinds (-types +definitions):\n%s", diff)
	}
}

// TestPublishTakesRequestableNames compares the attribute names that the CRD allows in policies with those in the code.
func TestPublishTakesRequestableNames(t *testing.T) {
	crd := find[*apiextensions.CustomResourceDefinition](t, "crds/networking.dra.io_deviceexposurepolicies.yaml")
	for _, version := range crd.Spec.Versions {
		schema := *version.Schema.OpenAPIV3Schema
		for _, field := range []string{"spec", "exposure", "publish"} {
			schema = schema.Properties[field]
		}
		var names []string
		for _, name := range schema.Items.Schema.Enum {
			names = append(names, strings.Trim(string(name.Raw), `"`))
		}
		want := policyapi.RequestableNames()
		slices.Sort(names)
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("%s: list RequestableNames in the marker of Exposure.Publish, and run make generate (-want "+
				"+got):\n%s", version.Name, diff)
		}
	}
}
