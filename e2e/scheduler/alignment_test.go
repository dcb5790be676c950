package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// gpuDriver is another driver, which is not related to networking.
const gpuDriver = "gpu.example.com"

// roots contains a machine's PCI root complexes, with the number of GPUs and NICs below each of them. Only the first
// and third root can satisfy a claim for a GPU and two NICs; the third root can satisfy two such claims.
var roots = []struct {
	name       string
	gpus, nics int
}{
	{"pci0000:10", 1, 2}, {"pci0000:40", 2, 1}, {"pci0000:80", 2, 4}, {"pci0000:c0", 0, 2},
}

// A claim for two NICs and another driver's GPU is allocated devices below a single PCI root, as GPUDirect requires, as
// long as a root has enough of them. After that, the scheduler rejects such claims even though GPUs and NICs are still
// available.
func TestGPUsAndCardsBelowOneRoot(t *testing.T) {
	onEvery(t, func(t *testing.T, p *plane) {
		h, below := discoverytest.NewHost(), map[string]string{}
		var gpus []resourceapi.Device
		for _, root := range roots {
			bus := strings.TrimPrefix(root.name, "pci0000:")
			for i := range root.nics {
				name, address := fmt.Sprintf("eth%sx%d", bus, i), fmt.Sprintf("0000:%s:%02x.0", bus, 2+i)
				h.FunctionBelow("devices/"+root.name+"/0000:"+bus+":01.0", address)
				h.NIC(name, address)
				below[name] = root.name
			}
			for i := range root.gpus {
				name := fmt.Sprintf("gpu-%s-%d", bus, i)
				gpus = append(gpus,
					resourceapi.Device{Name: name,
						Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
							deviceattribute.StandardDeviceAttributePCIeRoot: {StringValue: new(root.name)},
						}})
				below[name] = root.name
			}
		}
		n := p.publish(t, "gpus", record(t, h), []v1alpha1.DeviceExposurePolicy{exposurePolicy(t, "nics", `
selector: {cel: 'device.attributes["dra.networking"].type == "nic"'}
action: expose
exposure: {supportedCNIPlugins: [{name: host-device, exclusive: true}]}
`)}, p.encodings...)
		n.publishGPUs(t, gpus)
		if err := p.apply(t.Context(), fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: 'device.driver == %q'}}]}
`, gpuDriver)); err != nil {
			t.Fatal(err)
		}
		n.offers(t, len(below))
		spec := claim(request{class: "gpu"}, request{class: "host-device"})
		spec.Devices.Requests[1].Exactly.Count = 2
		attribute := resourceapi.FullyQualifiedName(deviceattribute.StandardDeviceAttributePCIeRoot)
		spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &attribute}}
		for i := range 4 {
			pod, err := n.pod(t.Context(), fmt.Sprint(i), false, spec)
			if err != nil {
				t.Fatal(err)
			}
			devices, err := n.outcome(t.Context(), pod, i < 3)
			if err != nil {
				t.Fatalf("pod %d: %v", i, err)
			}
			for _, device := range devices {
				if len(devices) != 3 || below[device.Device] != below[devices[0].Device] {
					t.Errorf("pod %d got misaligned devices %s: %s is below %s", i, names(devices), device.Device,
						below[device.Device])
				}
			}
			if i < 3 {
				t.Logf("below %s: %s", below[devices[0].Device], names(devices))
			}
		}
	})
}

// publishGPUs publishes the other driver's devices for the node, and deletes them at the end of the test.
func (n node) publishGPUs(t *testing.T, gpus []resourceapi.Device) {
	t.Helper()
	object, err := n.client.CoreV1().Nodes().Get(t.Context(), n.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	controller, err := resourceslice.StartController(t.Context(), resourceslice.Options{
		DriverName: gpuDriver, KubeClient: n.client,
		Owner: &resourceslice.Owner{APIVersion: "v1", Kind: "Node", Name: n.name, UID: object.UID},
		Resources: &resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
			n.name: {Slices: []resourceslice.Slice{{Devices: slices.Clone(gpus)}}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(controller.Stop)
}
