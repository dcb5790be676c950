package deploy_test

import (
	"fmt"
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
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
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
	samplePods       = "samples/pods.yaml"
)

func TestPoliciesAreAccepted(t *testing.T) {
	for _, file := range []string{"policies.yaml", samplePolicies} {
		for _, p := range all[*policyapi.DeviceExposurePolicy](load(t, file)) {
			for _, problem := range policyapi.Validate(p) {
				t.Errorf("%s, %s: %v", file, p.Name, problem)
			}
			if err := policy.CheckSelector(p.Spec.Selector.CEL); err != nil {
				t.Errorf("%s, %s: %v", file, p.Name, err)
			}
		}
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
	for _, topology := range all[*topologyapi.NetworkTopology](load(t, sampleTopologies)) {
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

// TestDefinitionsAreTaken runs the API server's checks of the definitions themselves, with the cost of their CEL rules.
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

// TestCustomResourcesPassTheirDefinitions runs what the API server runs: defaults, the schema, the CEL rules.
func TestCustomResourcesPassTheirDefinitions(t *testing.T) {
	definitions := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, file := range files(t, "crds/*.yaml") {
		crd := find[*apiextensionsv1.CustomResourceDefinition](t, file)
		definitions[crd.Spec.Names.Kind] = crd
	}
	for _, file := range []string{"policies.yaml", samplePolicies, sampleTopologies} {
		for _, document := range documents(t, file) {
			var object map[string]any
			if err := yaml.UnmarshalStrict(document, &object); err != nil {
				t.Fatal(err)
			}
			kind := object["kind"].(string)
			if definitions[kind] == nil {
				t.Fatalf("%s: there is no definition of %s", file, kind)
			}
			for _, problem := range admit(t, definitions[kind], object) {
				t.Errorf("%s, %s: %v", file, object["metadata"], problem)
			}
		}
	}
}

// TestDefinitionsJudgeByTheirRules: rules must also hold where optional fields are left out.
func TestDefinitionsJudgeByTheirRules(t *testing.T) {
	const policyCRD, topologyCRD = "crds/networking.dra.io_deviceexposurepolicies.yaml", "crds/networking.dra.io_networktopologies.yaml"
	tests := map[string]struct {
		definition string
		spec       string
		want       string // is contained in the only problem; empty: there is none
	}{
		"exclusive by one word": {policyCRD,
			`{selector: {cel: "true"}, exposure: {supportedCNIPlugins: [{name: sriov, exclusive: true}]}}`, ""},
		"shared by one word": {policyCRD,
			`{selector: {cel: "true"}, exposure: {allowMultipleAllocations: true, supportedCNIPlugins: [{name: macvlan}]}}`, ""},
		"neither word": {policyCRD,
			`{selector: {cel: "true"}, exposure: {supportedCNIPlugins: [{name: macvlan}]}}`, ""},
		"shared by exclusive plugins": {policyCRD,
			`{selector: {cel: "true"}, exposure: {allowMultipleAllocations: true, supportedCNIPlugins: [{name: sriov, exclusive: true}]}}`,
			"every plugin is exclusive"},
		"mixed without capacity": {policyCRD,
			`{selector: {cel: "true"}, exposure: {supportedCNIPlugins: [{name: sriov, exclusive: true}, {name: macvlan}]}}`,
			"need allowMultipleAllocations: true and a capacity"},
		"steps in order": {topologyCRD,
			`{steps: [{name: a, type: macvlan, selector: {cel: "true"}}, {name: b, type: tuning, dependOn: [a]}]}`, ""},
		"steps out of order": {topologyCRD,
			`{steps: [{name: b, type: tuning, dependOn: [a]}, {name: a, type: macvlan, selector: {cel: "true"}}]}`, "must stand after"},
		"a step after itself": {topologyCRD, `{steps: [{name: b, type: tuning, dependOn: [b]}]}`, "must stand after"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			crd := find[*apiextensionsv1.CustomResourceDefinition](t, test.definition)
			var spec map[string]any
			if err := yaml.UnmarshalStrict([]byte(test.spec), &spec); err != nil {
				t.Fatal(err)
			}
			problems := admit(t, crd, map[string]any{
				"apiVersion": topologyapi.GroupVersion().String(), "kind": crd.Spec.Names.Kind, "metadata": map[string]any{"name": "x"}, "spec": spec,
			})
			got := fmt.Sprint(problems)
			if test.want == "" && len(problems) > 0 || test.want != "" && (len(problems) != 1 || !strings.Contains(got, test.want)) {
				t.Errorf("got %s, want %q", got, test.want)
			}
		})
	}
}

func admit(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition, object map[string]any) field.ErrorList {
	t.Helper()
	var internal apiextensions.CustomResourceValidation
	err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(crd.Spec.Versions[0].Schema, &internal, nil)
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
	defaulting.Default(object, structural)
	problems := validation.ValidateCustomResource(nil, object, validator)
	rules, _ := cel.NewValidator(structural, true, celconfig.PerCallLimit).
		Validate(t.Context(), nil, structural, object, nil, celconfig.RuntimeCELCostBudget)
	return append(problems, rules...)
}

// TestSamplesFitTogether: every class that a pod asks for is one of a topology, every root step has a template, its device
// is exposed to its plugin, and every container waits for the claim of its pod.
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
			t.Errorf("topology %s attaches with %s, but the device is exposed to %q", topology.Name, root.Type, got)
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
			if len(container.Resources.Claims) != 1 || container.Resources.Claims[0].Name != pod.Spec.ResourceClaims[0].Name {
				t.Errorf("container %s of pod %s doesn't name the claim of its pod", container.Name, pod.Name)
			}
		}
	}
	slices.Sort(classes)
	slices.Sort(used)
	if diff := cmp.Diff(classes, slices.Compact(used)); diff != "" {
		t.Errorf("wrong classes (-of topologies +asked by pods):\n%s", diff)
	}
}
