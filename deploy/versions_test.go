package deploy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/dra-networking/dra-network-driver/cnichain"
	topologyapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	topologycorpus "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1/corpus"
	topologybeta "github.com/dra-networking/dra-network-driver/cnichain/v1beta1"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1/corpus"
	policybeta "github.com/dra-networking/dra-network-driver/policy/v1beta1"
)

// everyField is the path to a file with objects that, between them, set every field of their kinds.
const everyField = "testdata/every-field.yaml"

// served is a served version of a kind, as seen by the API server and by Go programs.
type served struct {
	name string
	definition
	decoder runtime.Decoder
}

// versionsOf returns the served versions of every kind.
func versionsOf(t *testing.T) map[string][]served {
	t.Helper()
	builders := map[string][]func(*runtime.Scheme) error{
		topologyapi.GroupVersion().String():  {topologyapi.AddToScheme, policyapi.AddToScheme},
		topologybeta.GroupVersion().String(): {topologybeta.AddToScheme, policybeta.AddToScheme},
	}
	kinds := map[string][]served{}
	for _, file := range files(t, "crds/*.yaml") {
		crd := find[*apiextensions.CustomResourceDefinition](t, file)
		for i := range crd.Spec.Versions {
			single := crd.DeepCopy()
			single.Spec.Versions = crd.Spec.Versions[i : i+1]
			version := served{name: crd.Spec.Group + "/" + crd.Spec.Versions[i].Name, definition: newDefinition(t, single)}
			scheme := runtime.NewScheme()
			for _, addToScheme := range builders[version.name] {
				if err := addToScheme(scheme); err != nil {
					t.Fatal(err)
				}
			}
			version.decoder = serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
			kinds[crd.Spec.Names.Kind] = append(kinds[crd.Spec.Names.Kind], version)
		}
	}
	return kinds
}

// examples returns valid and invalid objects of every kind, in the form in which clients send them.
func examples(t *testing.T) []map[string]any {
	t.Helper()
	var objects []map[string]any
	for _, document := range documents(t, everyField) {
		for range 8 { // some kinds have no other examples
			objects = append(objects, decode(t, document))
		}
	}
	for _, c := range slices.Concat(corpus.Valid(t), corpus.Invalid(t)) {
		objects = append(objects, c.Object(t))
	}
	for _, c := range slices.Concat(topologycorpus.Valid(t), topologycorpus.Invalid(t),
		topologycorpus.InvalidSchemas(t)) {
		objects = append(objects, c.Object(t))
	}
	schemas := cnichain.DefaultSchemas().All()
	for _, cniType := range slices.Sorted(maps.Keys(schemas)) {
		object := untyped(t, &topologyapi.CNIPluginSchema{Spec: schemas[cniType]})
		object["apiVersion"], object["kind"] = topologyapi.GroupVersion().String(), "CNIPluginSchema"
		delete(object, "status")
		objects = append(objects, object)
	}
	return objects
}

// TestConversion checks that all served versions accept and reject the same random objects, which are derived from
// valid and invalid ones. The API server and Go programs must be able to write a valid object in one version and read
// it in another without losing any fields.
func TestConversion(t *testing.T) {
	kinds := versionsOf(t)
	originals := examples(t)
	rounds := 32
	if testing.Short() {
		rounds = 4
	}
	valid, refused := map[string]int{}, map[string]int{}
	for seed := range rounds {
		random := rand.New(rand.NewPCG(uint64(seed), 7)) //nolint:gosec // the same objects in every run
		for _, original := range originals {
			object := runtime.DeepCopyJSON(original)
			for range seed % 4 { // every fourth round uses unchanged objects
				mutate(random, object, originals)
			}
			kind := object["kind"].(string)
			if convert(t, kinds[kind], object) {
				valid[kind]++
			} else {
				refused[kind]++
			}
		}
	}
	for kind := range kinds {
		if valid[kind] < 2*rounds || refused[kind] < rounds {
			t.Errorf("%s: %d objects were valid and %d invalid: too few for a conclusion",
				kind, valid[kind], refused[kind])
		}
	}
	t.Logf("valid: %v, rejected: %v", valid, refused)
}

// convert converts an object between the first version and each of the others, and reports whether it is valid in all
// versions.
func convert(t *testing.T, versions []served, object map[string]any) bool {
	t.Helper()
	stored, problems := versions[0].validate(t, object)
	for _, other := range versions[1:] {
		storedByOther, problemsOfOther := other.validate(t, object)
		if diff := cmp.Diff(problems, problemsOfOther); diff != "" {
			t.Errorf("versions validate the object differently (-%s +%s):\n%s\n%v",
				versions[0].name, other.name, diff, object)
			return false
		}
		if len(problems) > 0 {
			continue
		}
		if diff := cmp.Diff(stored["spec"], storedByOther["spec"]); diff != "" {
			t.Errorf("versions store the object differently (-%s +%s):\n%s", versions[0].name, other.name, diff)
		}
		exchange(t, versions[0], other, stored)
		exchange(t, other, versions[0], storedByOther)
	}
	return len(problems) == 0
}

// exchange writes an object in one version, lets a Go program read and write it in another version, and reads it back
// in the first version.
func exchange(t *testing.T, writer, reader served, object map[string]any) {
	t.Helper()
	// If a field in an optional object has a default, Go writes the optional object even if other clients omit it. As a
	// result, all defaults are set in such objects.
	complete := writer.rewritten(t, object)
	again := renamed(reader.rewritten(t, renamed(complete, reader.name)), writer.name)
	if diff := cmp.Diff(complete, again); diff != "" {
		t.Errorf("object written in %s changes when read and written in %s (-before +after):\n%s",
			writer.name, reader.name, diff)
	}
	if before, after := writer.decodeTyped(t, complete), writer.decodeTyped(t, again); !equality.Semantic.DeepEqual(before,
		after) {
		t.Errorf("object written in %s decodes differently after being read and written in %s",
			writer.name, reader.name)
	}
}

// rewritten returns the object that the API server stores when a Go program reads the given object and writes it back.
func (s served) rewritten(t *testing.T, object map[string]any) map[string]any {
	t.Helper()
	read := s.decodeTyped(t, object)
	if gv := read.GetObjectKind().GroupVersionKind().GroupVersion().String(); gv != s.name {
		t.Errorf("the object is decoded as %s, want %s", gv, s.name)
	}
	data, err := json.Marshal(read)
	written := map[string]any{}
	if err == nil {
		err = utiljson.Unmarshal(data, &written)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, hasStatus := object["status"]; !hasStatus {
		delete(written, "status") // Go writes an empty status
	}
	stored, problems := s.store(t, written)
	if len(problems) > 0 {
		t.Errorf("%s: an object that was read is rejected on write: %v", s.name, problems)
	}
	return stored
}

// store returns an object as the API server stores it when it is written in this version, or the reasons why it is
// rejected.
func (s served) store(t *testing.T, object map[string]any) (stored map[string]any, problems []string) {
	t.Helper()
	stored = renamed(object, s.name)
	pruning.Prune(stored, s.structural, true)
	defaulting.PruneNonNullableNullsWithoutDefaults(stored, s.structural)
	for _, problem := range s.admit(t, stored) {
		problems = append(problems, problem.Error())
	}
	slices.Sort(problems) // the schema's problems are in map order
	return stored, problems
}

// validate returns an object as the API server stores it, and the reasons why the API server or, failing that, the
// webhook rejects it.
func (s served) validate(t *testing.T, object map[string]any) (stored map[string]any, problems []string) {
	t.Helper()
	if stored, problems = s.store(t, object); len(problems) > 0 {
		return stored, problems
	}
	var found field.ErrorList
	switch o := s.decodeTyped(t, stored).(type) {
	case *policybeta.DeviceExposurePolicy:
		found, _ = policy.Check(o)
	case *topologybeta.NetworkTopology:
		found = cnichain.Validate(o, cnichain.DefaultSchemas())
	case *topologybeta.CNIPluginSchema:
		found = cnichain.ValidateSchema(&o.Spec)
	}
	for _, problem := range found {
		problems = append(problems, problem.Error())
	}
	return stored, problems
}

// decodeTyped reads an object strictly, like a program that uses this version's types.
func (s served) decodeTyped(t *testing.T, object map[string]any) runtime.Object {
	t.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	typed, _, err := s.decoder.Decode(data, nil, nil)
	if err != nil {
		t.Fatalf("cannot decode an object of version %s: %v\n%s", s.name, err, data)
	}
	return typed
}

// renamed returns an object converted to apiVersion in the same way as in the API server.
func renamed(object map[string]any, apiVersion string) map[string]any {
	object = runtime.DeepCopyJSON(object)
	object["apiVersion"] = apiVersion
	return object
}

// mutate changes a single value in a spec: it removes the value, repeats it, or replaces it with a value of the same
// name from another object.
func mutate(random *rand.Rand, object map[string]any, pool []map[string]any) {
	parent := object
	for {
		var keys []string
		for _, key := range slices.Sorted(maps.Keys(parent)) {
			if key != "apiVersion" && key != "kind" && key != "metadata" && key != "status" {
				keys = append(keys, key)
			}
		}
		if len(keys) == 0 {
			return
		}
		key := keys[random.IntN(len(keys))]
		value := parent[key]
		if list, isList := value.([]any); isList && len(list) > 0 && random.IntN(2) == 0 {
			value = list[random.IntN(len(list))]
		}
		if child, isObject := value.(map[string]any); isObject && len(child) > 0 && random.IntN(5) > 0 {
			parent = child
			continue
		}
		change(random, parent, key, pool)
		return
	}
}

func change(random *rand.Rand, parent map[string]any, key string, pool []map[string]any) {
	switch random.IntN(4) {
	case 0:
		delete(parent, key)
	case 1:
		if list, isList := parent[key].([]any); isList && len(list) > 0 {
			parent[key] = append(list, runtime.DeepCopyJSONValue(list[random.IntN(len(list))]))
			return
		}
		parent[key] = []any{nil, "", "x", int64(0), int64(-1), true, map[string]any{}, []any{}}[random.IntN(8)]
	default:
		found := valuesOf(pool[random.IntN(len(pool))], key)
		if len(found) > 0 {
			parent[key] = runtime.DeepCopyJSONValue(found[random.IntN(len(found))])
		}
	}
}

// valuesOf returns all values with the given name, at any depth, in a fixed order.
func valuesOf(value any, name string) (found []any) {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if key == name {
				found = append(found, value[key])
			}
			found = append(found, valuesOf(value[key], name)...)
		}
	case []any:
		for _, item := range value {
			found = append(found, valuesOf(item, name)...)
		}
	}
	return found
}

// TestEveryFieldIsSet: new fields must be added to the objects that are used to test conversions.
func TestEveryFieldIsSet(t *testing.T) {
	set := map[string]map[string]bool{}
	for _, document := range documents(t, everyField) {
		object := decode(t, document)
		kind := object["kind"].(string)
		if set[kind] == nil {
			set[kind] = map[string]bool{}
		}
		for _, version := range versionsOf(t)[kind] {
			if stored, problems := version.validate(t, object); len(problems) > 0 {
				t.Errorf("%s %v: %v", kind, object["metadata"], problems)
			} else if diff := cmp.Diff(renamed(object, version.name), stored); diff != "" {
				t.Errorf("%s %v is not stored as written (-written +stored):\n%s", kind, object["metadata"], diff)
			}
			renamed := renamed(object, version.name)
			written := version.rewritten(t, renamed)
			if !equality.Semantic.DeepEqual(version.decodeTyped(t, renamed), version.decodeTyped(t, written)) {
				t.Errorf("%s %v changes when Go decodes and encodes it:\n%s",
					kind, object["metadata"], cmp.Diff(renamed, written))
			}
			collectFields(version.structural, written, "", set[kind])
		}
	}
	for kind, versions := range versionsOf(t) {
		for _, version := range versions {
			for _, field := range fieldsOf(version.structural, "") {
				if !set[kind][field] {
					t.Errorf("%s: no %s in %s sets %s", version.name, kind, everyField, field)
				}
			}
		}
	}
}

// fieldsOf returns the sorted paths to a schema's fields, without metadata.
func fieldsOf(structural *schema.Structural, path string) (fields []string) {
	for _, name := range slices.Sorted(maps.Keys(structural.Properties)) {
		if path == "" && name != "spec" && name != "status" {
			continue
		}
		property := structural.Properties[name]
		fields = append(fields, path+"."+name)
		fields = append(fields, fieldsOf(&property, path+"."+name)...)
	}
	if structural.Items != nil {
		fields = append(fields, fieldsOf(structural.Items, path+"[]")...)
	}
	if structural.AdditionalProperties != nil && structural.AdditionalProperties.Structural != nil {
		fields = append(fields, fieldsOf(structural.AdditionalProperties.Structural, path+"{}")...)
	}
	return fields
}

// collectFields adds the paths to the fields that are set in a value.
func collectFields(structural *schema.Structural, value any, path string, set map[string]bool) {
	switch value := value.(type) {
	case map[string]any:
		for key, child := range value {
			if property, isField := structural.Properties[key]; isField {
				set[path+"."+key] = true
				collectFields(&property, child, path+"."+key, set)
			} else if more := structural.AdditionalProperties; more != nil && more.Structural != nil {
				collectFields(more.Structural, child, path+"{}", set)
			}
		}
	case []any:
		for _, item := range value {
			if structural.Items != nil {
				collectFields(structural.Items, item, path+"[]", set)
			}
		}
	}
}

// TestVersions: every kind is served in all versions and stored in the first. Including their columns, selectable
// fields and subresources, the versions differ only in name. The compiler checks that the Go types are the same.
func TestVersions(t *testing.T) {
	for _, file := range files(t, "crds/*.yaml") {
		crd := find[*apiextensions.CustomResourceDefinition](t, file)
		if crd.Spec.Conversion == nil || crd.Spec.Conversion.Strategy != apiextensions.NoneConverter {
			t.Errorf("%s: want conversion strategy None, got %+v", file, crd.Spec.Conversion)
		}
		var want []apiextensions.CustomResourceDefinitionVersion
		for i, gv := range topologyapi.ServedVersions() {
			version := *crd.Spec.Versions[0].DeepCopy()
			version.Name, version.Served, version.Storage = gv.Version, true, i == 0
			want = append(want, version)
		}
		if diff := cmp.Diff(want, crd.Spec.Versions); diff != "" {
			t.Errorf("%s: wrong versions (-want +got): run make generate\n%s", file, diff)
		}
	}
}

// TestSchemesHaveEveryKind: each version of the types contains the kinds in the definitions, and no version occurs
// twice.
func TestSchemesHaveEveryKind(t *testing.T) {
	alpha, beta := runtime.NewScheme(), runtime.NewScheme()
	if err := errors.Join(topologyapi.AddToScheme(alpha), policyapi.AddToScheme(alpha), topologybeta.AddToScheme(beta),
		policybeta.AddToScheme(beta)); err != nil {
		t.Fatal(err)
	}
	if topologybeta.GroupVersion() != policybeta.GroupVersion() ||
		fmt.Sprint(topologyapi.ServedVersions()) != fmt.Sprint([]any{topologyapi.GroupVersion(),
			topologybeta.GroupVersion()}) {
		t.Errorf("wrong served versions: %v", topologyapi.ServedVersions())
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(alpha.KnownTypes(topologyapi.GroupVersion()))),
		slices.Sorted(maps.Keys(beta.KnownTypes(topologybeta.GroupVersion())))); diff != "" {
		t.Errorf("versions have different kinds (-v1alpha1 +v1beta1):\n%s", diff)
	}
}
