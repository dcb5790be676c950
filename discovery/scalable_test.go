package discovery_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
)

// A scalable function has the same hardware as the physical function above it and, like a virtual function, belongs to
// the physical function.
func TestScalableFunctions(t *testing.T) {
	h := discoverytest.ScalableFunctions()
	facts := read(t, h)
	want := discovery.Device{
		Name: "enp3s0f0s1", Interface: "enp3s0f0s1", Kind: "device", Type: discovery.TypeSF, MAC: "02:00:00:00:00:09",
		MTU: 1500, OperState: "up", AdminUp: true, Carrier: true, PCIeRoot: "pci0000:00", NUMANode: 1, Vendor: "15b3",
		Product: "a2dc", Driver: "mlx5_core.sf", RDMA: true, RDMADevices: []string{"mlx5_3"},
		RDMALinkLayer: discovery.RDMAEthernet, RepresentorName: "en3f0pf0sf1",
		PFName: "p0", PFAddress: "0000:03:00.0", VFIndex: discovery.None, SFNumber: 1,
		AuxiliaryDevice: "mlx5_core.sf.3", VLANID: discovery.None,
	}
	if diff := cmp.Diff(want, byName(t, facts, "enp3s0f0s1")); diff != "" {
		t.Errorf("scalable function (-want +got):\n%s", diff)
	}
	if len(facts.Problems) > 0 || len(facts.Orphans) > 0 {
		t.Errorf("got problems %v and orphans %v, want none", facts.Problems, facts.Orphans)
	}
	if representor := byName(t, facts, "en3f0pf0sf1"); representor.Type != discovery.TypeNIC || !representor.Immovable {
		t.Errorf("representor has type %s and can be moved: %t", representor.Type, !representor.Immovable)
	}

	h.DefaultRoute("enp3s0f0s0")
	if pf := byName(t, read(t, h), "p0"); !pf.DefaultRoute {
		t.Error("p0 is not marked as the default route although its scalable function carries that route")
	}
	pf := byName(t, read(t, h), "p0")
	h.Remove("p0")
	if sf := byName(t, read(t, h), "enp3s0f0s1"); sf.PFName != "" || sf.PFAddress != "0000:03:00.0" {
		t.Errorf("without the interface of its physical function, the function belongs to %q (%s)", sf.PFName,
			sf.PFAddress)
	}
	// The physical function is in a pod, or its name is remembered. In both cases, the exclusion must remain in effect.
	for name, away := range map[string]discovery.Facts{"in use": read(t, h).With(pf),
		"remembered": read(t, h).Named(map[discovery.PCIAddress]discovery.IfName{"0000:03:00.0": "p0"})} {
		if sf := byName(t, away, "enp3s0f0s1"); sf.PFName != "p0" {
			t.Errorf("%s: name of the physical function = %q, want p0", name, sf.PFName)
		}
	}
}

// A scalable function's name does not change when its physical function is renamed.
func TestScalableFunctionKeepsItsName(t *testing.T) {
	facts := read(t, discoverytest.ScalableFunctions())
	named := facts.Named(map[discovery.PCIAddress]discovery.IfName{"0000:03:00.0": "old0"})
	if sf := byName(t, named, "enp3s0f0s0"); sf.PFName != "old0" {
		t.Errorf("name of the physical function = %s, want old0", sf.PFName)
	}
}

// A physical function that was bound to a userspace driver at boot has no interface, so it is named after its address.
func TestPhysicalFunctionWithoutInterface(t *testing.T) {
	h := discoverytest.SRIOV()
	h.Remove("enp3s0f0")
	h.Symlink(h.Dir("0000:03:00.0")+"/driver", "bus/pci/drivers/vfio-pci")
	facts := read(t, h)
	pf := byName(t, facts, "pci-0000-03-00-0")
	if pf.Type != discovery.TypePF || pf.Interface != "" || pf.Driver != "vfio-pci" {
		t.Errorf("got %+v, want a physical function bound to vfio-pci", pf)
	}
	if len(facts.Orphans) != 2 {
		t.Errorf("virtual functions that cannot be configured must be orphans; orphans = %v", facts.Orphans)
	}
	byName(t, facts.Named(map[discovery.PCIAddress]discovery.IfName{"0000:03:00.0": "enp3s0f0"}), "enp3s0f0")
}
