package slices_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// The kernel cannot create a macvlan on a non-Ethernet device, so such a device is not offered for plugins that would
// try to.
func TestOtherDevicesThanEthernetAreNotOfferedForMacvlan(t *testing.T) {
	devices := []discovery.Device{
		{Name: "eth1", Interface: "eth1", Type: discovery.TypeNIC},
		{Name: "ib0", Interface: "ib0", Type: discovery.TypeNIC, LinkType: "infiniband"},
		{Name: "wg0", Interface: "wg0", Type: "wireguard", LinkType: "none"},
	}
	all := features()
	all.StackingCNIs = sets.New("macvlan")
	decision := policy.Resolve(discovery.Facts{Devices: devices}, policies(t, `
selector: {cel: 'true'}
exposure: {supportedCNIPlugins: [{name: macvlan, exclusive: true}]}`), policy.Node{Name: "worker-1"})
	result, err := draslices.Build("worker-1", decision, all)
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Entries) != 1 || result.Entries[0].Name != "eth1" {
		t.Errorf("published %v, want only eth1", result.Entries)
	}
	want := "CNI plugin macvlan needs an Ethernet device, but this is a wireguard (link/none), so the device is not " +
		"offered for it"
	if len(result.Problems) != 2 || !strings.Contains(result.Problems[1].Message, want) {
		t.Errorf("problems = %v, want one for each of ib0 and wg0", result.Problems)
	}
}

// The kernel cannot move bridges and bonds, so they are not offered for plugins that would move them.
func TestImmovableDevicesAreNotOfferedToPluginsThatMoveThem(t *testing.T) {
	devices := []discovery.Device{
		{Name: "br0", Interface: "br0", Type: discovery.TypeBridge, BridgeName: "br0", BridgeType: "linux", Immovable: true},
		{Name: "bond0", Interface: "bond0", Type: discovery.TypeBond, Kind: "bond", Immovable: true},
		{Name: "eth1", Interface: "eth1", Type: discovery.TypeNIC},
		{Name: "ovs-system", Interface: "ovs-system", Type: discovery.TypeOVSDatapath, Immovable: true},
		{Name: "team0", Interface: "team0", Type: discovery.TypeNIC, Kind: "team", Immovable: true},
		{Name: "vrf0", Interface: "vrf0", Type: discovery.TypeNIC, Kind: "vrf", Immovable: true},
	}
	all := features()
	all.MovingCNIs = sets.New("host-device")
	for name, test := range map[string]struct{ plugins, want string }{
		"only such": {"[{name: host-device, exclusive: true}]", "eth1"},
		"and one that does": {"[{name: host-device, exclusive: true}, {name: bridge, exclusive: true}]",
			"bond0 br0 eth1 ovs-system team0 vrf0"},
		"none such": {"[{name: bridge, exclusive: true}]", "bond0 br0 eth1 ovs-system team0 vrf0"},
	} {
		decision := policy.Resolve(discovery.Facts{Devices: devices},
			policies(t, "selector: {cel: 'true'}\nexposure: {supportedCNIPlugins: "+test.plugins+"}"),
			policy.Node{Name: "worker-1"})
		result, err := draslices.Build("worker-1", decision, all)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, entry := range result.Entries {
			names = append(names, entry.Name)
			if entry.Name == "br0" {
				if _, offered := entry.Spec.Attributes["cni.dra.networking/host-device"]; offered {
					t.Errorf("%s: br0 was offered to host-device", name)
				}
			}
		}
		if strings.Join(names, " ") != test.want {
			t.Errorf("%s: published %v, want %s", name, names, test.want)
		}
		told := false
		for _, problem := range result.Problems {
			told = told || problem.Device == "br0" &&
				strings.Contains(problem.Message, "CNI plugin host-device moves devices into pods")
		}
		if told != strings.Contains(test.plugins, "host-device") {
			t.Errorf("%s: wrong problems: %v", name, result.Problems)
		}
	}
}

// A plugin that finds a device by its PCI address would attach an arbitrary port of the function. Plugins that are
// given an interface name can attach each port.
func TestPortsOfOneFunctionAreNotOfferedByAddress(t *testing.T) {
	devices := []discovery.Device{
		{Name: "eth0", Interface: "eth0", Type: discovery.TypeNIC, PCIAddress: "0000:05:00.0", SharedFunction: true},
		{Name: "eth1", Interface: "eth1", Type: discovery.TypeNIC, SharedFunction: true},
		{Name: "eth2", Interface: "eth2", Type: discovery.TypeNIC, PCIAddress: "0000:06:00.0"},
	}
	all := features()
	all.PCIAddressCNIs = sets.New("sriov")
	for plugins, want := range map[string]string{
		"[{name: sriov, exclusive: true}]":                                       "eth2",
		"[{name: host-device, exclusive: true}]":                                 "eth0 eth1 eth2",
		"[{name: sriov, exclusive: true}, {name: host-device, exclusive: true}]": "eth0 eth1 eth2",
	} {
		decision := policy.Resolve(discovery.Facts{Devices: devices},
			policies(t, "selector: {cel: 'true'}\nexposure: {supportedCNIPlugins: "+plugins+"}"),
			policy.Node{Name: "worker-1"})
		result, err := draslices.Build("worker-1", decision, all)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, entry := range result.Entries {
			names = append(names, entry.Name)
			_, sriov := entry.Spec.Attributes["cni.dra.networking/sriov"]
			if sriov != (strings.Contains(plugins, "sriov") && entry.Name == "eth2") {
				t.Errorf("%s: %s has the sriov attribute: %t", plugins, entry.Name, sriov)
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: published %s, want %s", plugins, got, want)
		}
		problem := "CNI plugin sriov finds devices by PCI address, but several interfaces share the address of this " +
			"one, so the device is not offered for it"
		if strings.Contains(plugins, "sriov") &&
			(len(result.Problems) != 2 || !strings.Contains(result.Problems[0].Message, problem)) {
			t.Errorf("%s: problems = %v, want two, including one for sriov", plugins, result.Problems)
		}
	}
}
