package host

import (
	"net"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// A link must be proven to be the device before it is renamed, set down and moved. A matching name, index or address
// alone is not enough, since any one of these may now belong to another link.
func TestDeviceOnHostIsProven(t *testing.T) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 7}
	attrs := func(name string, index int, mac net.HardwareAddr, parent int) netlink.LinkAttrs {
		return netlink.LinkAttrs{Name: name, Index: index, HardwareAddr: mac, ParentIndex: parent}
	}
	wireguard := cnichain.Device{IfName: "wg0", Baseline: cnichain.Baseline{BootID: "b", Kind: "wireguard", Index: 10}}
	tunnel := cnichain.Device{IfName: "tun6", Baseline: cnichain.Baseline{BootID: "b", Kind: "ipip", Index: 10,
		MAC: "0a:00:00:01"}}
	unset := cnichain.Device{IfName: "gre0", Baseline: cnichain.Baseline{BootID: "b", Kind: "gretap", Index: 10,
		MAC: "00:00:00:00:00:00"}}
	vlan := cnichain.Device{IfName: "up0.100", Baseline: cnichain.Baseline{BootID: "b", Kind: "vlan", Index: 10,
		MAC: mac.String(), Parent: 3, VLANID: 100, VLANProtocol: "802.1q"}}
	dummy := cnichain.Device{IfName: "d0", Baseline: cnichain.Baseline{BootID: "b", Kind: "dummy", Index: 10,
		MAC: mac.String()}}
	macvlan := cnichain.Device{IfName: "m0", Baseline: cnichain.Baseline{BootID: "b", Kind: "macvlan", Index: 10,
		MAC: mac.String(), Parent: 3}}
	old := cnichain.Device{IfName: "d0", Baseline: cnichain.Baseline{BootID: "b", Kind: "dummy", MAC: mac.String()}}
	ofVLAN := func(name string, index, parent, id int, protocol netlink.VlanProtocol) netlink.Link {
		return &netlink.Vlan{LinkAttrs: attrs(name, index, mac, parent), VlanId: id, VlanProtocol: protocol}
	}
	for name, test := range map[string]struct {
		device cnichain.Device
		link   netlink.Link
		want   bool
	}{
		"itself":           {wireguard, &netlink.Wireguard{LinkAttrs: attrs("wg0", 10, nil, 0)}, true},
		"recreated":        {wireguard, &netlink.Wireguard{LinkAttrs: attrs("wg0", 42, nil, 0)}, false},
		"index of another": {wireguard, &netlink.Wireguard{LinkAttrs: attrs("wg1", 10, nil, 0)}, false},
		"end of another tunnel": {tunnel,
			&netlink.Iptun{LinkAttrs: attrs("tun6", 42, net.HardwareAddr{10, 0, 0, 1}, 0)}, false},
		"address of zeros": {unset,
			&netlink.Gretap{LinkAttrs: attrs("gre0", 42, make(net.HardwareAddr, 6), 0)}, false},
		"VLAN itself, called other":    {vlan, ofVLAN("net1", 42, 3, 100, netlink.VLAN_PROTOCOL_8021Q), true},
		"VLAN with another ID":         {vlan, ofVLAN("up0.100", 10, 3, 200, netlink.VLAN_PROTOCOL_8021Q), false},
		"VLAN of another parent":       {vlan, ofVLAN("up0.100", 10, 4, 100, netlink.VLAN_PROTOCOL_8021Q), false},
		"VLAN with another protocol":   {vlan, ofVLAN("up0.100", 10, 3, 100, netlink.VLAN_PROTOCOL_8021AD), false},
		"returned under another index": {dummy, &netlink.Dummy{LinkAttrs: attrs("d0", 42, mac, 0)}, true},
		"returned with another name":   {dummy, &netlink.Dummy{LinkAttrs: attrs("mine", 10, mac, 0)}, true},
		"name only": {dummy,
			&netlink.Dummy{LinkAttrs: attrs("d0", 42, net.HardwareAddr{2, 0, 0, 0, 0, 8}, 0)}, false},
		"another kind":             {dummy, &netlink.Ifb{LinkAttrs: attrs("d0", 10, mac, 0)}, false},
		"on its way":               {dummy, &netlink.Dummy{LinkAttrs: attrs(transitName(&dummy), 99, nil, 0)}, true},
		"another parent":           {macvlan, &netlink.Macvlan{LinkAttrs: attrs("m0", 10, mac, 4)}, false},
		"old record":               {old, &netlink.Dummy{LinkAttrs: attrs("d0", 42, mac, 0)}, true},
		"old record, name only":    {old, &netlink.Dummy{LinkAttrs: attrs("d0", 42, nil, 0)}, false},
		"old record, address only": {old, &netlink.Dummy{LinkAttrs: attrs("d1", 42, mac, 0)}, false},
	} {
		if found := findVirtual([]netlink.Link{test.link}, &test.device) != nil; found != test.want {
			t.Errorf("%s: link recognized as the device: %v", name, found)
		}
	}
}

func TestTransitNames(t *testing.T) {
	for name, want := range map[string]bool{
		transitName(&cnichain.Device{PCIAddress: "0000:01:00.0"}): true,
		transitName(&cnichain.Device{IfName: "eth1"}):             true,
		"dra-0a1b2c3": false, "xdra-0a1b2c3d": false, "eth0": false,
	} {
		if IsTransitName(name) != want {
			t.Errorf("IsTransitName(%q) does not return %v", name, want)
		}
	}
}
