package slices_test

import (
	"fmt"
	"maps"
	stdslices "slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// nic returns a NIC without virtual functions.
func nic(name string) discovery.Device {
	return discovery.Device{Name: discovery.IfName(name), Interface: discovery.IfName(name), Kind: "device",
		Type: discovery.TypeNIC,
		MAC:  "02:00:00:00:00:01", MTU: 1500, LinkSpeed: 25000, OperState: "up", PCIAddress: "0000:03:00.0",
		PCIeRoot: "pci0000:00",
		NUMANode: 0, Vendor: "15b3", Product: "101d", Driver: "mlx5_core", VFIndex: discovery.None,
		VLANID: discovery.None}
}

// bridge returns a Linux bridge.
func bridge(name string) discovery.Device {
	return discovery.Device{Name: discovery.IfName(name), Interface: discovery.IfName(name), Kind: "bridge",
		Type: discovery.TypeBridge,
		MAC:  "02:00:00:00:00:02", MTU: 9000, OperState: "up", BridgeName: discovery.IfName(name), BridgeType: "linux",
		VLANFiltering: true,
		NUMANode:      discovery.None, VFIndex: discovery.None, VLANID: discovery.None}
}

// pf returns a physical function followed by its n virtual functions.
func pf(name string, n int) []discovery.Device {
	device := nic(name)
	device.Type, device.SRIOVCapable, device.TotalVFs, device.NumVFs = discovery.TypePF, true, 64, n
	devices := []discovery.Device{device}
	for i := range n {
		vf := nic(fmt.Sprintf("%sv%d", name, i))
		vf.Type, vf.PFName, vf.PFAddress, vf.VFIndex = discovery.TypeVF, device.Name, device.PCIAddress, i
		vf.PCIAddress = discovery.PCIAddress(fmt.Sprintf("0000:03:%02x.%d", 1+i/8, i%8))
		devices = append(devices, vf)
	}
	return devices
}

const (
	macvlanPolicy = `
selector: {cel: 'device.attributes["dra.networking"].type in ["nic", "pf"]'}
exposure:
  deviceNameSuffix: "-macvlan"
  allowMultipleAllocations: true
  capacity: {macvlans: {value: "4", requestPolicy: {default: "1", validRange: {min: "1", max: "4", step: "1"}}}}
  supportedCNIPlugins: [{name: macvlan, consumePerAllocation: {macvlans: 1}}]
  exclusionGroup: rx-handler`
	ipvlanPolicy = `
selector: {cel: 'device.attributes["dra.networking"].type in ["nic", "pf"]'}
exposure:
  deviceNameSuffix: "-ipvlan"
  allowMultipleAllocations: true
  capacity: {ipvlans: {value: "4", requestPolicy: {default: "1"}}}
  supportedCNIPlugins: [{name: ipvlan, consumePerAllocation: {ipvlans: 1}}]
  exclusionGroup: rx-handler`
	passthroughPolicy = `
selector: {cel: 'device.attributes["dra.networking"].type in ["nic", "pf"]'}
exposure:
  deviceNameSuffix: "-passthrough"
  supportedCNIPlugins: [{name: host-device, exclusive: true}]`
	vfPolicy = `
selector: {cel: 'device.attributes["dra.networking"].type == "vf"'}
exposure:
  supportedCNIPlugins: [{name: sriov, exclusive: true}, {name: host-device, exclusive: true}]`
	bridgePolicy = `
selector: {cel: 'device.attributes["dra.networking"].type == "bridge"'}
exposure:
  allowMultipleAllocations: true
  capacity: {ports: {value: "64", requestPolicy: {default: "1"}}}
  supportedCNIPlugins: [{name: bridge}]`
)

// policies parses specs into policies named policy-0, policy-1 and so on.
func policies(t testing.TB, specs ...string) []v1alpha1.DeviceExposurePolicy {
	t.Helper()
	var list []v1alpha1.DeviceExposurePolicy
	for i, text := range specs {
		p := v1alpha1.DeviceExposurePolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("policy-%d", i)}}
		if err := yaml.UnmarshalStrict([]byte(text), &p.Spec); err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	return list
}

// build resolves policies and builds the slices for the node worker-1, which has all plugins used in the tests.
func build(t testing.TB, devices []discovery.Device, specs ...string) draslices.Result {
	t.Helper()
	return buildWith(t, features(), devices, specs...)
}

// buildWith is like build, but with the given features.
func buildWith(
	t testing.TB, features draslices.Features, devices []discovery.Device, specs ...string,
) draslices.Result {
	t.Helper()
	decision := policy.Resolve(discovery.Facts{Devices: devices}, policies(t, specs...), policy.Node{Name: "worker-1"})
	for _, p := range decision.Problems {
		t.Fatalf("unexpected problem: %s", p)
	}
	result, err := draslices.Build("worker-1", decision, features)
	if err != nil {
		t.Fatal(err)
	}
	checkValid(t, result)
	return result
}

// clusters returns the features for clusters with and without the alpha features of Kubernetes.
func clusters() map[string]draslices.Features {
	groups, all := features(), features()
	groups.CompatibilityGroups = true
	all.ListAttributes, all.CompatibilityGroups = true, true
	return map[string]draslices.Features{"released features": features(), "compatibility groups": groups,
		"compatibility groups and lists": all}
}

// hasLists reports whether the result requires list attributes.
func hasLists(result draslices.Result) bool {
	return stdslices.ContainsFunc(result.Entries, func(e draslices.Entry) bool {
		return e.Spec.Attributes[policy.SupportedCNIs].StringValues != nil
	})
}

// hasGroups reports whether the result requires compatibility groups.
func hasGroups(result draslices.Result) bool {
	return stdslices.ContainsFunc(result.Entries, func(e draslices.Entry) bool {
		return stdslices.ContainsFunc(e.Spec.ConsumesCounters,
			func(c resourceapi.DeviceCounterConsumption) bool { return c.CompatibilityGroups != nil })
	})
}

func features() draslices.Features {
	return draslices.Features{CNIBinaries: sets.New("macvlan", "ipvlan", "host-device", "sriov", "bridge", "device-only")}
}

// summary prints the result in publication order, without attributes.
func summary(result draslices.Result) string {
	var out strings.Builder
	for _, name := range stdslices.Sorted(maps.Keys(result.Resources.Pools)) {
		fmt.Fprintf(&out, "pool %s\n", name)
		for _, slice := range result.Resources.Pools[name].Slices {
			for _, set := range slice.SharedCounters {
				fmt.Fprintf(&out, "  set %s: %s\n", set.Name, counters(set.Counters))
			}
			if len(slice.Devices) > 0 {
				fmt.Fprintf(&out, "  slice of %d\n", len(slice.Devices))
			}
			for _, d := range slice.Devices {
				fmt.Fprintf(&out, "  device %s%s\n", d.Name, device(d))
			}
		}
	}
	for _, p := range result.Problems {
		what := "problem"
		if p.Remark {
			what = "remark"
		}
		fmt.Fprintf(&out, "%s %s\n", what, p)
	}
	return out.String()
}

func device(d resourceapi.Device) string {
	var out strings.Builder
	if d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations {
		out.WriteString(" shared")
	}
	for _, name := range stdslices.Sorted(maps.Keys(d.Capacity)) {
		c := d.Capacity[name]
		fmt.Fprintf(&out, " %s=%s", name, &c.Value)
		if c.RequestPolicy != nil {
			fmt.Fprintf(&out, "/%s", c.RequestPolicy.Default)
		}
	}
	for _, c := range d.ConsumesCounters {
		fmt.Fprintf(&out, " <- %s", counters(c.Counters))
		if c.CompatibilityGroups != nil {
			fmt.Fprintf(&out, " %v", c.CompatibilityGroups)
		}
	}
	return out.String()
}

func counters(values map[string]resourceapi.Counter) string {
	var list []string
	for _, name := range stdslices.Sorted(maps.Keys(values)) {
		c := values[name]
		list = append(list, fmt.Sprintf("%s=%s", name, &c.Value))
	}
	return strings.Join(list, " ")
}
