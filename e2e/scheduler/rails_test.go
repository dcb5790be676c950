package scheduler

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// railAttribute is the NIC attribute set by the sample policies.
const railAttribute resourceapi.QualifiedName = "example.com/rail"

// TestRails checks that the scheduler allocates NICs that are close to another driver's GPUs, on two kinds of machines
// with eight GPUs and eight NICs. On one kind, GPUs and NICs are paired by their PCI root; on the other, by a table in
// the policy.
func TestRails(t *testing.T) {
	onEvery(t, func(t *testing.T, p *plane) {
		if err := p.apply(t.Context(), fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: 'device.driver == %q'}}]}
`, gpuDriver)); err != nil {
			t.Fatal(err)
		}
		t.Run("by PCI root", func(t *testing.T) {
			n := railNode(t, p, "h100", "eight-gpus-by-root.yaml", "gpus-h100.yaml")
			n.aligned(t, "all", 8, deviceattribute.StandardDeviceAttributePCIeRoot, nil)
			n.refused(t, "nothing-left", pairs(1, deviceattribute.StandardDeviceAttributePCIeRoot))
		})
		t.Run("by table", func(t *testing.T) {
			n := railNode(t, p, "mi300x", "eight-gpus-by-table.yaml", "gpus-with-rails.yaml")
			n.refused(t, "by-root", pairs(1, deviceattribute.StandardDeviceAttributePCIeRoot))
			n.aligned(t, "seven", 7, railAttribute, nil)
			// One GPU and one NIC are still available. The GPU has no rail attribute, as if its driver were unable to
			// determine the rail.
			n.refused(t, "without-rail", pairs(1, railAttribute))
			if !p.derivedAttributes {
				return
			}
			// A claim can derive a rail for the GPU.
			n.aligned(t, "derived", 1, railAttribute, &resourceapi.DeviceDerivedAttribute{
				Name: resourceapi.FullyQualifiedName(railAttribute),
				Expression: `device.attributes["resource.kubernetes.io"].pciBusID == "0000:e5:00.0" ? 7 : ` +
					`device.attributes["example.com"].rail`,
			})
		})
	})
}

// railNode publishes the devices in a recording of a machine, under the policy in a sample, and GPUs from a file with
// ResourceSlices.
func railNode(t *testing.T, p *plane, name, sample, gpus string) node {
	t.Helper()
	machine := discoverytest.GPUMachines()[name]
	policies := documents[v1alpha1.DeviceExposurePolicy](t, "deploy/samples/examples/"+sample, "DeviceExposurePolicy")
	published := documents[resourceapi.ResourceSlice](t, "cmd/netdra/testdata/simulate/"+gpus, "ResourceSlice")
	if len(policies) != 1 || len(published) != 1 || len(published[0].Spec.Devices) != 8 {
		t.Fatalf("%s has %d policies, %s has %d slices; want one each", sample, len(policies), gpus, len(published))
	}
	n := p.publish(t, name, record(t, machine), policies, p.encodings...)
	n.publishGPUs(t, published[0].Spec.Devices)
	n.offers(t, 16)
	return n
}

// documents returns the documents of a given kind in one of the repository's YAML files.
func documents[T any](t *testing.T, file, kind string) []T {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(file)))
	if err != nil {
		t.Fatal(err)
	}
	var all []T
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		if strings.Contains(document, "\nkind: "+kind+"\n") {
			all = append(all, parse[T](t, document))
		}
	}
	return all
}

// pairs returns a claim for GPUs, each paired with a NIC that has the same value for an attribute. All NICs must be on
// different rails.
func pairs(count int, attribute resourceapi.QualifiedName) resourceapi.ResourceClaimSpec {
	requests := make([]request, 0, 2*count)
	for range count {
		requests = append(requests, request{class: "gpu"}, request{class: "host-device"})
	}
	spec := claim(requests...)
	match, rail := resourceapi.FullyQualifiedName(attribute), resourceapi.FullyQualifiedName(railAttribute)
	distinct := resourceapi.DeviceConstraint{DistinctAttribute: &rail}
	for i := range count {
		gpu, nic := spec.Devices.Requests[2*i].Name, spec.Devices.Requests[2*i+1].Name
		spec.Devices.Constraints = append(spec.Devices.Constraints,
			resourceapi.DeviceConstraint{Requests: []string{gpu, nic}, MatchAttribute: &match})
		distinct.Requests = append(distinct.Requests, nic)
	}
	spec.Devices.Constraints = append(spec.Devices.Constraints, distinct)
	return spec
}

// aligned checks that a pod is allocated GPUs and NICs that match according to the devices published for the node. If
// derived is not nil, it computes the attribute for GPUs in the claim, and the values published for the GPUs are not
// checked.
func (n node) aligned(t *testing.T, name string, count int, attribute resourceapi.QualifiedName,
	derived *resourceapi.DeviceDerivedAttribute) {
	t.Helper()
	spec := pairs(count, attribute)
	if derived != nil {
		spec.Devices.Requests[0].Exactly.DerivedAttributes = []resourceapi.DeviceDerivedAttribute{*derived}
	}
	pod, err := n.pod(t.Context(), name, false, spec)
	if err != nil {
		t.Fatal(err)
	}
	devices, err := n.outcome(t.Context(), pod, true)
	if err != nil {
		t.Fatalf("pod %s: %v", pod, err)
	}
	published, err := n.devices()
	if err != nil || len(devices) != 2*count {
		t.Fatalf("pod %s got unexpected devices %s: %v", pod, names(devices), err)
	}
	byRequest := map[string]resourceapi.Device{}
	for _, d := range devices {
		byRequest[d.Request] = published[d.Device]
	}
	rails := map[int64]bool{}
	for i := range count {
		gpu, nic := byRequest[spec.Devices.Requests[2*i].Name], byRequest[spec.Devices.Requests[2*i+1].Name]
		if derived == nil && text(gpu.Attributes[attribute]) != text(nic.Attributes[attribute]) {
			t.Errorf("pod %s got %s with %s, but %s with %s", pod, gpu.Name, text(gpu.Attributes[attribute]), nic.Name,
				text(nic.Attributes[attribute]))
		}
		rails[*nic.Attributes[railAttribute].IntValue] = true
	}
	if len(rails) != count {
		t.Errorf("pod %s got %d NICs on rails %v, want different rails", pod, count, rails)
	}
	t.Logf("pod %s has %s", pod, names(devices))
}

// text formats the value of an attribute, such that strings and numbers can be distinguished.
func text(a resourceapi.DeviceAttribute) string {
	switch {
	case a.StringValue != nil:
		return fmt.Sprintf("%q", *a.StringValue)
	case a.IntValue != nil:
		return fmt.Sprint(*a.IntValue)
	}
	return "none"
}

// refused checks that a pod with the given claim is not scheduled.
func (n node) refused(t *testing.T, name string, spec resourceapi.ResourceClaimSpec) {
	t.Helper()
	pod, err := n.pod(t.Context(), name, false, spec)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.outcome(t.Context(), pod, false); err != nil {
		t.Errorf("pod %s should remain pending: %v", pod, err)
	}
	if err := n.release(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}
