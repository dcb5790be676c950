package slices_test

import (
	"fmt"
	stdslices "slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// For every published attribute and each pair of devices, the real allocator decides whether a claim can get both
// devices if their values must match, and whether it can get both if their values must be distinct. Devices without the
// attribute satisfy neither constraint.
func TestConstraints(t *testing.T) {
	all := stdslices.Concat(policy.AlwaysPublished(), policy.PublishedWhereFact(), policy.PublishedOnRequest())
	facts := constrainedFacts()
	for _, name := range all {
		id := strings.TrimPrefix(string(name), v1alpha1.AttributeDomain+"/")
		groups, known := facts[id]
		if !known {
			t.Errorf("the test does not define which devices have %s", name)
			continue
		}
		request := ""
		if stdslices.Contains(v1alpha1.RequestableNames(), id) {
			request = "publish: [" + id + "],"
		}
		// The devices are shared, so that a NIC and its functions can be allocated together.
		spec := "selector: {cel: 'true'}\nexposure: {" + request + "allowMultipleAllocations: true, " +
			`capacity: {ports: {value: "9", requestPolicy: {default: "1"}}}, supportedCNIPlugins: [{name: macvlan}]}`
		s := newScheduler(t, build(t, constrained(), spec))
		checkPairs(t, s, resourceapi.FullyQualifiedName(name), groups)
	}
	if len(facts) != len(all) {
		t.Errorf("the test covers %d attributes, but %d are published", len(facts), len(all))
	}
}

// With list attributes, two devices match if they have at least one NUMA node in common, and are distinct otherwise.
func TestConstraintsOnLists(t *testing.T) {
	near := func(name string, nodes ...int) discovery.Device {
		d := discovery.Device{Name: discovery.IfName(name), Type: discovery.TypeNIC, NUMANode: discovery.None,
			VFIndex: discovery.None, VLANID: discovery.None}
		if len(nodes) > 0 {
			d.NUMANode, d.NUMANodes = nodes[0], nodes
		}
		return d
	}
	devices := []discovery.Device{near("eth0", 0, 1), near("eth1", 1, 0), near("eth2", 2), near("eth3")}
	lists := features()
	lists.ListAttributes = true
	s := newScheduler(t, buildWith(t, lists, devices, `
selector: {cel: 'true'}
exposure: {supportedCNIPlugins: [{name: macvlan, exclusive: true}]}`))
	checkPairsOf(t, s, devices, "resource.kubernetes.io/numaNode", [][]string{{"eth0", "eth1"}, {"eth2"}})
}

// checkPairs claims each pair of devices returned by constrained. Devices in the same group have the same attribute
// value.
func checkPairs(t *testing.T, s *scheduler, name resourceapi.FullyQualifiedName, groups [][]string) {
	t.Helper()
	checkPairsOf(t, s, constrained(), name, groups)
}

func checkPairsOf(
	t *testing.T, s *scheduler, devices []discovery.Device, name resourceapi.FullyQualifiedName, groups [][]string,
) {
	t.Helper()
	groupOf := func(device string) int {
		return stdslices.IndexFunc(groups, func(g []string) bool { return stdslices.Contains(g, device) })
	}
	for i, first := range devices {
		for _, second := range devices[i+1:] {
			a, b := groupOf(string(first.Name)), groupOf(string(second.Name))
			both := a >= 0 && b >= 0
			for _, test := range []struct {
				constraint resourceapi.DeviceConstraint
				want       bool
			}{
				{resourceapi.DeviceConstraint{MatchAttribute: &name}, both && a == b},
				{resourceapi.DeviceConstraint{DistinctAttribute: &name}, both && a != b},
			} {
				results, err := s.allocate(pair(s, first, second, test.constraint))
				if err != nil || (len(results) > 0) != test.want {
					t.Errorf("%s and %s, match %t in %s: allocated = %t (%v), want %t", first.Name, second.Name,
						test.constraint.MatchAttribute != nil, name, len(results) > 0, err, test.want)
				}
				clear(s.claims)
			}
		}
	}
}

// pair returns a claim for two specific devices, with a constraint.
func pair(
	s *scheduler, first, second discovery.Device, constraint resourceapi.DeviceConstraint,
) *resourceapi.ResourceClaim {
	c := s.claim("macvlan", "macvlan")
	for i, d := range []discovery.Device{first, second} {
		c.Spec.Devices.Requests[i].Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
			Expression: fmt.Sprintf(`device.attributes["dra.networking"].ifName == %q`, d.Name)}}}
	}
	c.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{constraint}
	return c
}

// constrained returns two NICs with functions that differ in every property, as well as a bridge, a VLAN, and a link
// without known properties.
func constrained() []discovery.Device {
	nic := func(n int, settings *discovery.VFSettings, indexes ...int) []discovery.Device {
		name, address := fmt.Sprintf("p%d", n), fmt.Sprintf("0000:0%d:00", n)
		common := discovery.Device{Kind: "device", MTU: 1000 * n, LinkSpeed: 10000 * n, NUMANode: n,
			PCIeRoot: fmt.Sprintf("pci000%d:00", n), Vendor: fmt.Sprintf("000%d", n), Product: fmt.Sprintf("000%d", n),
			Driver: fmt.Sprintf("driver%d", n), RDMA: true, RDMADevices: []string{fmt.Sprintf("mlx5_%d", n)},
			RDMALinkLayer: fmt.Sprintf("layer%d", n), RDMANetns: fmt.Sprintf("mode%d", n),
			RDMAPort: discovery.RDMAPort{GUID: fmt.Sprintf("0x000000000000000%d", n), Rate: 100 * n,
				PKeys: []string{fmt.Sprintf("0x800%d", n)}},
			SwitchID: fmt.Sprintf("switch%d", n), VLANID: discovery.None, VFIndex: discovery.None}
		pf := common
		pf.Name, pf.Interface, pf.Type = discovery.IfName(name), discovery.IfName("eth"+name), discovery.TypePF
		pf.AltNames, pf.MAC = []string{"alt" + name}, fmt.Sprintf("02:00:00:00:00:0%d", n)
		pf.PCIAddress, pf.PortName = discovery.PCIAddress(address+".0"), name
		pf.SRIOVCapable, pf.TotalVFs, pf.NumVFs = true, 8*n, 2*n
		pf.EswitchMode, pf.Representor = fmt.Sprintf("mode%d", n), n == 2
		devices := []discovery.Device{pf}
		for _, i := range indexes {
			vf := common
			vf.Name, vf.Type = discovery.IfName(fmt.Sprintf("%sv%d", name, i)), discovery.TypeVF
			vf.PCIAddress = discovery.PCIAddress(fmt.Sprintf("%s.%d", address, i+2))
			vf.PFName, vf.PFAddress, vf.VFIndex, vf.Settings = pf.Name, pf.PCIAddress, i, settings
			vf.Master, vf.MasterKind = "br"+pf.Name, fmt.Sprintf("kind%d", n)
			devices = append(devices, vf)
		}
		return devices
	}
	first := &discovery.VFSettings{MAC: "02:00:00:00:01:01", VLAN: 1, QoS: 1, Trust: true, SpoofCheck: true,
		LinkState: "auto", MinTxRate: 1, MaxTxRate: 1}
	second := &discovery.VFSettings{MAC: "02:00:00:00:01:02", LinkState: "enable"}
	unknown := discovery.Device{NUMANode: discovery.None, VLANID: discovery.None, VFIndex: discovery.None}
	bridge, vlan, dummy := unknown, unknown, unknown
	bridge.Name, bridge.Interface, bridge.Kind, bridge.Type = "br0", "br0", "bridge", discovery.TypeBridge
	bridge.BridgeName, bridge.BridgeType = "br0", "linux"
	vlan.Name, vlan.Interface, vlan.Kind, vlan.Type = "p1.7", "p1.7", "vlan", discovery.TypeVLAN
	vlan.Parent, vlan.VLANID = "p1", 7
	dummy.Name, dummy.Type = "x0", "dummy"
	scalable := func(n int) discovery.Device {
		sf := unknown
		sf.Name, sf.Type, sf.SFNumber = discovery.IfName(fmt.Sprintf("s%d", n)), discovery.TypeSF, n
		sf.AuxiliaryDevice = fmt.Sprintf("mlx5_core.sf.%d", n)
		sf.RepresentorName = discovery.IfName(fmt.Sprintf("rep%d", n))
		return sf
	}
	return append(append(nic(1, first, 0, 1), nic(2, second, 0)...), bridge, vlan, dummy, scalable(1), scalable(2))
}

// constrainedFacts groups the devices returned by constrained by their values, for each attribute. Devices that are in
// no group do not have the attribute.
func constrainedFacts() map[string][][]string {
	nics := [][]string{{"p1", "p1v0", "p1v1"}, {"p2", "p2v0"}}
	physical := [][]string{{"p1"}, {"p2"}}
	virtual := [][]string{{"p1v0", "p1v1"}, {"p2v0"}}
	each := [][]string{{"p1"}, {"p1v0"}, {"p1v1"}, {"p2"}, {"p2v0"}}
	facts := map[string][][]string{
		"type":   {{"p1", "p2"}, {"p1v0", "p1v1", "p2v0"}, {"br0"}, {"p1.7"}, {"x0"}, {"s1", "s2"}},
		"kind":   {{"p1", "p2", "p1v0", "p1v1", "p2v0"}, {"br0"}, {"p1.7"}},
		"ifName": append([][]string{{"br0"}, {"p1.7"}, {"x0"}, {"s1"}, {"s2"}}, each...), "interface": {{"p1"}, {"p2"},
			{"br0"}, {"p1.7"}},
		"rdma":         {{"p1", "p1v0", "p1v1", "p2", "p2v0"}, {"br0", "p1.7", "x0", "s1", "s2"}},
		"sriovCapable": {{"p1", "p2"}, {"p1v0", "p1v1", "p2v0", "br0", "p1.7", "x0", "s1", "s2"}},
		"representor":  {{"p2"}, {"p1", "p1v0", "p1v1", "p2v0", "br0", "p1.7", "x0", "s1", "s2"}},
		"vlanID":       {{"p1.7"}}, "parent": {{"p1.7"}}, "bridgeName": {{"br0"}}, "bridgeType": {{"br0"}},
		"vlanFiltering": {{"br0"}}, "vfIndex": {{"p1v0", "p2v0"}, {"p1v1"}}, "pciAddress": each,
		"resource.kubernetes.io/pciBusID": each,
	}
	for _, name := range []string{"sfNumber", "auxiliaryDevice", "representorName"} {
		facts[name] = [][]string{{"s1"}, {"s2"}}
	}
	for _, name := range []string{"mtu", "linkSpeed", "numaNode", "vendor", "product", "driver", "rdmaDevice",
		"rdmaDevices", "rdmaLinkLayer", "rdmaNetns", "rdmaPortGUID", "rdmaRate", "rdmaPKeys", "switchID",
		"device.k8s.io/pcieRoot", "resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/numaNode"} {
		facts[name] = nics
	}
	for _, name := range []string{"altNames", "mac", "portName", "totalVFs", "numVFs", "eswitchMode"} {
		facts[name] = physical
	}
	for _, name := range []string{"pfName", "pfAddress", "masterBridge", "masterKind", "vfMAC", "vfVLAN", "vfQoS",
		"vfTrust", "vfSpoofCheck", "vfLinkState", "vfMinTxRate", "vfMaxTxRate"} {
		facts[name] = virtual
	}
	return facts
}
