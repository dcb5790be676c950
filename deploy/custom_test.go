package deploy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain"
	topologyapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

const (
	samplePolicies   = "samples/policies.yaml"
	sampleTopologies = "samples/topologies.yaml"
	sampleExamples   = "samples/examples/*.yaml"
	sampleReference  = "samples/reference-node.yaml"
	samplePods       = "samples/pods.yaml"
	sampleSchemas    = "samples/schemas.yaml"
)

func TestPoliciesAreAccepted(t *testing.T) {
	for _, file := range files(t, "policies.yaml", samplePolicies, sampleExamples,
		sampleReference) {
		for _, p := range all[*policyapi.DeviceExposurePolicy](load(t, file)) {
			problems, remarks := policy.Check(p)
			for _, problem := range problems {
				t.Errorf("%s, %s: %v", file, p.Name, problem)
			}
			for _, remark := range remarks {
				if p.Name == "example-8-everything" { // unchanged from the published design
					continue
				}
				t.Errorf("%s, %s: %s", file, p.Name, remark)
			}
		}
	}
}

// Applying a sample does not change any object from another sample, and deleting a sample does not delete any object
// from another sample. The index lists all samples.
func TestSamplesLeaveEachOtherAlone(t *testing.T) {
	index, err := os.ReadFile("samples/examples/README.md")
	if err != nil {
		t.Fatal(err)
	}
	owner := map[string]string{}
	for _, file := range files(t, "policies.yaml", samplePolicies, sampleTopologies, samplePods, sampleSchemas,
		sampleExamples,
		sampleReference) {
		for _, document := range documents(t, file) {
			object := decode(t, document)
			metadata := object["metadata"].(map[string]any)
			key := fmt.Sprint(object["kind"], " ", metadata["namespace"], "/", metadata["name"])
			if owner[key] != "" {
				t.Errorf("%s is defined in both %s and %s", key, owner[key], file)
			}
			owner[key] = file
		}
		if name := filepath.Base(file); filepath.Dir(file) == "samples/examples" &&
			!strings.Contains(string(index), "["+name+"]("+name+")") {
			t.Errorf("the index does not list %s", name)
		}
	}
	if len(owner) < 50 {
		t.Errorf("only %d objects were checked, want at least 50", len(owner))
	}
}

func TestShippedPoliciesOnlyExclude(t *testing.T) {
	var got []string
	for _, p := range all[*policyapi.DeviceExposurePolicy](load(t, "policies.yaml")) {
		got = append(got, fmt.Sprintf("%s %s", p.Spec.Action, p.Name))
	}
	want := []string{"exclude exclude-infrastructure", "exclude exclude-ovn-k", "exclude exclude-management"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong policies (-want +got):\n%s", diff)
	}
}

func TestTopologiesAreAccepted(t *testing.T) {
	var topologies []*topologyapi.NetworkTopology
	for _, file := range files(t, sampleTopologies, sampleExamples,
		sampleReference) {
		topologies = append(topologies, all[*topologyapi.NetworkTopology](load(t, file))...)
	}
	for _, topology := range topologies {
		for _, problem := range cnichain.Validate(topology, cnichain.DefaultSchemas()) {
			t.Errorf("%s: %v", topology.Name, problem)
		}
		for _, step := range topology.Spec.Steps {
			if step.Selector == nil {
				continue
			}
			if err := policy.CheckClassSelector(step.Selector.CEL); err != nil {
				t.Errorf("%s, step %s: %v", topology.Name, step.Name, err)
			}
		}
	}
}

func TestSchemasAreAccepted(t *testing.T) {
	for _, schema := range all[*topologyapi.CNIPluginSchema](load(t, sampleSchemas)) {
		for _, problem := range cnichain.ValidateSchema(&schema.Spec) {
			t.Errorf("%s: %v", schema.Name, problem)
		}
		if _, builtIn := cnichain.DefaultSchemas().Lookup(schema.Spec.CNIType); builtIn {
			t.Errorf("%s: a built-in schema for %s exists, and the sample would replace it", schema.Name,
				schema.Spec.CNIType)
		}
	}
}

// TestDefinitionsAreTaken runs the API server's checks on the definitions themselves, including cost estimates for
// their CEL rules.
func TestDefinitionsAreTaken(t *testing.T) {
	scheme := newScheme(t)
	if err := apiextensions.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, file := range files(t, "crds/*.yaml") {
		crd := find[*apiextensionsv1.CustomResourceDefinition](t, file)
		scheme.Default(crd)
		internal := &apiextensions.CustomResourceDefinition{}
		if err := scheme.Convert(crd, internal, nil); err != nil {
			t.Fatal(err)
		}
		internal.Status.StoredVersions = []string{crd.Spec.Versions[0].Name}
		for _, problem := range crdvalidation.ValidateCustomResourceDefinition(t.Context(), internal) {
			t.Errorf("%s: %v", file, problem)
		}
	}
}

// TestCustomResourcesPassTheirDefinitions runs the same steps as the API server: defaults, the schema, and the CEL
// rules.
func TestCustomResourcesPassTheirDefinitions(t *testing.T) {
	definitions := map[string]definition{}
	for _, file := range files(t, "crds/*.yaml") {
		crd := find[*apiextensionsv1.CustomResourceDefinition](t, file)
		definitions[crd.Spec.Names.Kind] = newDefinition(t, crd)
	}
	checked := 0
	for _, file := range files(t, "policies.yaml", samplePolicies, sampleTopologies, sampleSchemas, sampleExamples,
		sampleReference) {
		for _, document := range documents(t, file) {
			object := decode(t, document)
			definition, defined := definitions[object["kind"].(string)]
			if !defined {
				continue // a Kubernetes kind
			}
			checked++
			for _, problem := range definition.admit(t, object) {
				t.Errorf("%s, %s: %v", file, object["metadata"], problem)
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d objects were checked, want at least 20", checked)
	}
}

// decode reads YAML in the same way as the API server: numbers are decoded as integers if possible.
func decode(t *testing.T, text []byte) map[string]any {
	t.Helper()
	data, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := utiljson.Unmarshal(data, &object); err != nil {
		t.Fatal(err)
	}
	return object
}

// definition is a CRD in the API server's internal form.
type definition struct {
	structural *schema.Structural
	validator  validation.SchemaValidator
	rules      *cel.Validator
}

func newDefinition(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) definition {
	t.Helper()
	var internal apiextensions.CustomResourceValidation
	err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(
		crd.Spec.Versions[0].Schema, &internal, nil,
	)
	if err != nil {
		t.Fatal(err)
	}
	structural, err := schema.NewStructural(internal.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	validator, _, err := validation.NewSchemaValidator(internal.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	return definition{structural, validator, cel.NewValidator(structural, true, celconfig.PerCallLimit)}
}

// admit applies the defaults to an object and evaluates the schema and the CEL rules.
func (d definition) admit(t *testing.T, object map[string]any) field.ErrorList {
	t.Helper()
	defaulting.Default(object, d.structural)
	problems := validation.ValidateCustomResource(nil, object, d.validator)
	problems = append(problems, listtype.ValidateListSetsAndMaps(nil, d.structural, object)...)
	broken, _ := d.rules.Validate(t.Context(), nil, d.structural, object, nil, celconfig.RuntimeCELCostBudget)
	return append(problems, broken...)
}

// TestSamplesFitTogether: every class that a pod requests belongs to a topology, every root step has a template and a
// device exposed for the step's plugin, and every container waits for its pod's claim.
func TestSamplesFitTogether(t *testing.T) {
	exposed := map[string]string{} // plugin by selector
	for _, p := range all[*policyapi.DeviceExposurePolicy](load(t, samplePolicies)) {
		exposed[p.Spec.Selector.CEL] = p.Spec.Exposure.SupportedCNIPlugins[0].Name
	}
	var classes []string
	for _, topology := range all[*topologyapi.NetworkTopology](load(t, sampleTopologies)) {
		root := topology.Spec.Steps[0]
		classes = append(classes, topology.Name+"-"+root.Name)
		if got := exposed[root.Selector.CEL]; got != root.Type {
			t.Errorf("topology %s attaches with %s, but the device is exposed as %q", topology.Name, root.Type, got)
		}
	}
	pods := load(t, samplePods)
	asked := map[string]string{} // class by template
	for _, template := range all[*resourceapi.ResourceClaimTemplate](pods) {
		asked[template.Name] = template.Spec.Spec.Devices.Requests[0].Exactly.DeviceClassName
	}
	var used []string
	for _, pod := range all[*corev1.Pod](pods) {
		used = append(used, asked[*pod.Spec.ResourceClaims[0].ResourceClaimTemplateName])
		for _, container := range pod.Spec.Containers {
			if len(container.Resources.Claims) != 1 ||
				container.Resources.Claims[0].Name != pod.Spec.ResourceClaims[0].Name {
				t.Errorf("container %s of pod %s does not name the claim of its pod", container.Name, pod.Name)
			}
		}
	}
	slices.Sort(classes)
	slices.Sort(used)
	if diff := cmp.Diff(classes, slices.Compact(used)); diff != "" {
		t.Errorf("wrong classes (-defined by topologies +requested by pods):\n%s", diff)
	}
}
