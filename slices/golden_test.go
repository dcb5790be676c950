package slices_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	stdslices "slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

var update = flag.Bool("update", false, "rewrite the slices in testdata; the text before them stays")

// firstSlice is the text with which the slices in a golden file start.
const firstSlice = "---\napiVersion: resource.k8s.io/v1\nkind: ResourceSlice\n"

// TestGolden builds the slices for the examples in the published design. Each file in testdata contains the differences
// from the document, the example's policies, and the resulting slices.
func TestGolden(t *testing.T) {
	for name, devices := range examples() {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("testdata", name+".yaml")
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			input, want, _ := strings.Cut(string(data), firstSlice)
			facts := discovery.Facts{Devices: devices}
			decision := policy.Resolve(facts, readPolicies(t, input), policy.Node{Name: "worker-1"})
			plugins := features()
			plugins.CNIBinaries.Insert("ovn-k8s-cni-overlay")
			result, err := draslices.Build("worker-1", decision, plugins)
			if err != nil || len(decision.Problems) > 0 || len(result.Problems) > 0 {
				t.Fatal(err, decision.Problems, result.Problems)
			}
			checkValid(t, result)
			got := printSlices(t, result)
			if *update {
				if err := os.WriteFile(path, []byte(input+got), 0o600); err != nil {
					t.Fatal(err)
				}
			} else if diff := cmp.Diff(firstSlice+want, got); diff != "" {
				t.Errorf("published (-want +got); run with -update to accept it:\n%s", diff)
			}
		})
	}
}

func readPolicies(t *testing.T, text string) []v1alpha1.DeviceExposurePolicy {
	t.Helper()
	var list []v1alpha1.DeviceExposurePolicy
	for _, document := range strings.Split(text, "\n---\n") {
		var p v1alpha1.DeviceExposurePolicy
		if err := yaml.UnmarshalStrict([]byte(document), &p); err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	return list
}

// TestReferenceNode checks the figures that the document gives for its node: 8 policies, 3 pools and 16 entries,
// without the three links that must not be published.
func TestReferenceNode(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "reference-node.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	input, _, _ := strings.Cut(string(data), firstSlice)
	list := readPolicies(t, input)
	decision := policy.Resolve(discovery.Facts{Devices: examples()["reference-node"]}, list,
		policy.Node{Name: "worker-1"})
	result, err := draslices.Build("worker-1", decision, features())
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 8 || len(result.Resources.Pools) != 3 || len(result.Entries) != 16 {
		t.Errorf("got %d policies, %d pools and %d entries, want 8, 3 and 16", len(list), len(result.Resources.Pools),
			len(result.Entries))
	}
	for _, e := range result.Entries {
		if stdslices.Contains([]discovery.IfName{"eno1", "br-int", "ovn-k8s-mp0"}, e.Device.Name) {
			t.Errorf("%s was published, want it excluded", e.Device.Name)
		}
	}
}

// examples returns the devices on the node in each example.
func examples() map[string][]discovery.Device {
	pf0 := func(vfs int) []discovery.Device { return function("enp3s0f0", "0000:03:00.0", 100000, vfs) }
	pf1 := func(vfs int) []discovery.Device { return function("enp3s0f1", "0000:03:00.1", 25000, vfs) }
	management := nic("eno1")
	management.LinkSpeed = 1000
	spare := management
	spare.Name, spare.Interface = "eno2", "eno2"
	cluster := []discovery.Device{management, virtual("br-int", discovery.TypeOVSInternal),
		virtual("ovn-k8s-mp0", discovery.TypeOVSInternal)}
	uplink := bridge("br-sriov-data")
	enslaved := pf0(2)
	enslaved[2].Master, enslaved[2].MasterKind = "br-sriov-data", "bridge"
	localnet := function("enp6s0f0", "0000:06:00.0", 25000, 0)
	localnet[0].NUMANode = 1
	nodes := map[string][]discovery.Device{
		"example1": pf0(2), "example2": pf0(2), "example3": pf1(0), "example4": pf1(0), "example5": pf0(0),
		"example6":       pf0(8),
		"example7":       append(enslaved, uplink),
		"example8":       append(cluster, virtual("breth0", discovery.TypeOVSInternal), spare),
		"example9":       append(function("enp4s0f0", "0000:04:00.0", 100000, 2), localnet...),
		"reference-node": stdslices.Concat(pf0(8), pf1(4), cluster, []discovery.Device{bridge("br-data")}),
	}
	for _, devices := range nodes {
		nameRDMA(devices)
	}
	return nodes
}

// nameRDMA adds one RDMA device to each function with RDMA, with the numbering that the kernel driver uses.
func nameRDMA(devices []discovery.Device) {
	number := 0
	for i := range devices {
		if devices[i].RDMA {
			devices[i].RDMADevices = []string{fmt.Sprintf("mlx5_%d", number)}
			number++
		}
	}
}

// function returns a ConnectX-7 function from the document, together with its virtual functions. The addresses of the
// second function's virtual functions follow those of the first function's eight virtual functions.
func function(name, address string, speed, vfs int) []discovery.Device {
	devices := pf(name, vfs)
	mac := map[string]string{"enp3s0f0": "04:3f:72:b0:d4:60", "enp3s0f1": "04:3f:72:b0:d4:61"}[name]
	first := 2
	if strings.HasSuffix(address, ".1") {
		first = 10
	}
	for i := range devices {
		d := &devices[i]
		d.RDMA, d.LinkSpeed = true, speed
		if i == 0 {
			d.PCIAddress, d.MAC = discovery.PCIAddress(address), mac
			continue
		}
		n := first + i - 1
		d.PFAddress, d.Product, d.MAC = discovery.PCIAddress(address), "101e", ""
		d.PCIAddress = discovery.PCIAddress(fmt.Sprintf("%s:%02x.%d", address[:len("0000:03")], n/8, n%8))
	}
	return devices
}

// virtual returns a link that is not backed by hardware.
func virtual(name, kind string) discovery.Device {
	return discovery.Device{Name: discovery.IfName(name), Interface: discovery.IfName(name), Kind: "openvswitch",
		Type: kind, MTU: 1500,
		NUMANode: discovery.None, VFIndex: discovery.None, VLANID: discovery.None}
}

// printSlices prints each slice as a YAML document, without the names generated by the slice controller.
func printSlices(t *testing.T, result draslices.Result) string {
	t.Helper()
	var out strings.Builder
	for _, pool := range stdslices.Sorted(maps.Keys(result.Resources.Pools)) {
		parts := result.Resources.Pools[pool].Slices
		for _, part := range parts {
			spec := sliceSpec(pool, len(parts), part)
			data, err := json.Marshal(spec)
			if err != nil {
				t.Fatal(err)
			}
			var value any
			if err := json.Unmarshal(data, &value); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&out, "%sspec:%s", firstSlice, compact(value, "  "))
			checkReads(t, "spec:"+compact(value, "  "), spec)
		}
	}
	return out.String()
}

// checkReads checks that the printed slices match the published slices.
func checkReads(t *testing.T, text string, want resourceapi.ResourceSliceSpec) {
	t.Helper()
	var got resourceapi.ResourceSlice
	if err := yaml.UnmarshalStrict([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.Spec); diff != "" {
		t.Errorf("the printed slices differ (-published +printed):\n%s", diff)
	}
}

// compact prints a value as YAML after a key or a dash, on a single line if it fits.
func compact(value any, indent string) string {
	if line := inline(value); len(line)+len(indent) < 110 {
		return " " + line + "\n"
	}
	var out strings.Builder
	out.WriteString("\n")
	switch value := value.(type) {
	case map[string]any:
		for _, key := range stdslices.Sorted(maps.Keys(value)) {
			out.WriteString(indent + key + ":" + compact(value[key], indent+"  "))
		}
	case []any:
		for _, item := range value {
			out.WriteString(indent + "-" +
				strings.TrimPrefix(strings.Replace(compact(item, indent+"  "), "\n"+indent+"  ", " ", 1), "\n"))
		}
	}
	return out.String()
}

// inline prints a value on one line.
func inline(value any) string {
	switch value := value.(type) {
	case map[string]any:
		var items []string
		for _, key := range stdslices.Sorted(maps.Keys(value)) {
			items = append(items, key+": "+inline(value[key]))
		}
		return "{" + strings.Join(items, ", ") + "}"
	case []any:
		var items []string
		for _, item := range value {
			items = append(items, inline(item))
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	data, _ := json.Marshal(value)
	return string(data)
}

// sliceSpec returns the spec of a slice in a pool as sent to the API server.
func sliceSpec(pool string, count int, part resourceslice.Slice) resourceapi.ResourceSliceSpec {
	return resourceapi.ResourceSliceSpec{
		Driver: v1alpha1.AttributeDomain, NodeName: ptr.To("worker-1"),
		Pool:    resourceapi.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: int64(count)},
		Devices: part.Devices, SharedCounters: part.SharedCounters,
	}
}
