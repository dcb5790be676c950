package topology

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// parse reads a topology. Its UID is uid-<name>, its generation 1.
func parse(t *testing.T, text string) *v1alpha1.NetworkTopology {
	t.Helper()
	topology := &v1alpha1.NetworkTopology{}
	if err := yaml.UnmarshalStrict([]byte(text), topology); err != nil {
		t.Fatalf("cannot read the topology of the test: %v", err)
	}
	topology.UID, topology.Generation = "uid-"+"1", 1
	return topology
}

const bonded = `
metadata: {name: bonded}
spec:
  steps:
  - {name: vf0, type: host-device, selector: {cel: 'device.attributes["dra.networking"].type == "vf"'}}
  - {name: vf1, type: ovn.k8s-cni, selector: {cel: "true // any\n"}}
  - {name: bond0, type: bond, dependOn: [vf0, vf1]}
`

func TestClasses(t *testing.T) {
	const want = `
- apiVersion: resource.k8s.io/v1
  kind: DeviceClass
  metadata:
    labels:
      networking.dra.io/step: vf0
      networking.dra.io/topology: bonded
      networking.dra.io/topology-uid: uid-1
    name: bonded-vf0
    ownerReferences:
    - {apiVersion: networking.dra.io/v1alpha1, blockOwnerDeletion: true, controller: true, kind: NetworkTopology, name: bonded, uid: uid-1}
  spec:
    config:
    - opaque:
        driver: dra.networking
        parameters: {apiVersion: networking.dra.io/v1alpha1, kind: StepParameters, networkTopologyRef: {name: bonded}, step: vf0}
    selectors:
    - cel: {expression: 'device.driver == "dra.networking"'}
    - cel: {expression: 'device.driver == "dra.networking" && device.attributes["cni.dra.networking"].?host_device.orValue(false)'}
    - cel: {expression: 'device.driver == "dra.networking" && (device.attributes["dra.networking"].type == "vf")'}
- apiVersion: resource.k8s.io/v1
  kind: DeviceClass
  metadata:
    labels:
      networking.dra.io/step: vf1
      networking.dra.io/topology: bonded
      networking.dra.io/topology-uid: uid-1
    name: bonded-vf1
    ownerReferences:
    - {apiVersion: networking.dra.io/v1alpha1, blockOwnerDeletion: true, controller: true, kind: NetworkTopology, name: bonded, uid: uid-1}
  spec:
    config:
    - opaque:
        driver: dra.networking
        parameters: {apiVersion: networking.dra.io/v1alpha1, kind: StepParameters, networkTopologyRef: {name: bonded}, step: vf1}
    selectors:
    - cel: {expression: 'device.driver == "dra.networking"'}
    - cel: {expression: 'device.driver == "dra.networking" && device.attributes["cni.dra.networking"].?ovn_k8s_cni.orValue(false)'}
    - cel: {expression: "device.driver == \"dra.networking\" && (true // any\n)"}
`
	var wanted []resourceapi.DeviceClass
	if err := yaml.UnmarshalStrict([]byte(want), &wanted); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wanted, Classes(parse(t, bonded))); diff != "" {
		t.Errorf("wrong classes (-want +got):\n%s", diff)
	}
}

// TestParametersAreReadByTheDriver: what is written here is what the node decodes.
func TestParametersAreReadByTheDriver(t *testing.T) {
	got, err := v1alpha1.DecodeParameters(parameters("bonded", "vf0"))
	want := v1alpha1.Parameters{
		APIVersion: "networking.dra.io/v1alpha1", Kind: "StepParameters",
		NetworkTopologyRef: v1alpha1.TopologyRef{Name: "bonded"}, Step: "vf0",
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v, wrong parameters (-want +got):\n%s", err, diff)
	}
}

// TestSelectorsAsTheSchedulerEvaluatesThem runs the selectors through the scheduler's own compiler, on devices of ours and
// of others.
func TestSelectorsAsTheSchedulerEvaluatesThem(t *testing.T) {
	attribute := func(values map[string]any) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
		attributes := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
		for name, value := range values {
			switch value := value.(type) {
			case string:
				attributes[resourceapi.QualifiedName(name)] = resourceapi.DeviceAttribute{StringValue: &value}
			case bool:
				attributes[resourceapi.QualifiedName(name)] = resourceapi.DeviceAttribute{BoolValue: &value}
			}
		}
		return attributes
	}
	class := Classes(parse(t, bonded))[0]
	tests := map[string]struct {
		device dracel.Device
		want   string
	}{
		"ours": {dracel.Device{Driver: "dra.networking",
			Attributes: attribute(map[string]any{"type": "vf", "cni.dra.networking/host_device": true})}, "true true true"},
		"ours, not by this plugin": {dracel.Device{Driver: "dra.networking",
			Attributes: attribute(map[string]any{"type": "vf", "cni.dra.networking/sriov": true})}, "true false true"},
		"ours, no plugin at all": {dracel.Device{Driver: "dra.networking",
			Attributes: attribute(map[string]any{"type": "pf"})}, "true false false"},
		"of another driver": {dracel.Device{Driver: "gpu.example.com",
			Attributes: attribute(map[string]any{"model": "x"})}, "false false false"},
		"of another driver, without attributes": {dracel.Device{Driver: "gpu.example.com",
			AllowMultipleAllocations: ptr.To(true)}, "false false false"},
	}
	compiler := dracel.GetCompiler(dracel.Features{})
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, selector := range class.Spec.Selectors {
				compiled := compiler.CompileCELExpression(selector.CEL.Expression, dracel.Options{})
				if compiled.Error != nil {
					t.Fatalf("%s: %v", selector.CEL.Expression, compiled.Error)
				}
				matches, _, err := compiled.DeviceMatches(t.Context(), test.device)
				if err != nil {
					t.Fatalf("%s ends the scheduling of the pod: %v", selector.CEL.Expression, err)
				}
				got = append(got, map[bool]string{true: "true", false: "false"}[matches])
			}
			if diff := cmp.Diff(test.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("wrong matches (-want +got):\n%s", diff)
			}
		})
	}
	commented := Classes(parse(t, bonded))[1]
	for _, selector := range commented.Spec.Selectors {
		if compiled := compiler.CompileCELExpression(selector.CEL.Expression, dracel.Options{}); compiled.Error != nil {
			t.Errorf("%s: %v", selector.CEL.Expression, compiled.Error)
		}
	}
}
