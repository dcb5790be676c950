package executor

import (
	"testing"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// A pod may have several VLANs on the same NIC, as well as other links stacked on its device.
func TestDeviceInPodIsProven(t *testing.T) {
	vlan := &cnichain.Device{Baseline: cnichain.Baseline{Kind: "vlan", Index: 10, MAC: "02:00:00:00:00:07", Parent: 3,
		VLANID: 100, VLANProtocol: "802.1q"}}
	link := cnichain.Link{Kind: "vlan", Index: 12, MAC: "02:00:00:00:00:07", Parent: 3, VLANID: 100,
		VLANProtocol: "802.1q"}
	other := link
	other.VLANID = 200
	if !isDevice(&link, vlan) || !isMoved(&link, vlan) || isDevice(&other, vlan) || isMoved(&other, vlan) {
		t.Error("a VLAN was not recognized, or was mistaken for another one on the same NIC")
	}
	made := cnichain.Link{Kind: "macvlan", Index: 12, MAC: "02:00:00:00:00:08", Parent: 10}
	macvlan := &cnichain.Device{Baseline: cnichain.Baseline{Kind: "macvlan", Index: 10,
		MAC: "02:00:00:00:00:07", Parent: 3}}
	if isMoved(&made, macvlan) || isDevice(&made, macvlan) {
		t.Error("a link stacked on the device was mistaken for the device")
	}
}
