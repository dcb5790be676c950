package cnichain_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// What a server has lent for a while is not taken back for longer than that.
func TestNetworkConfigLater(t *testing.T) {
	t.Parallel()
	lent := cnichain.NodeAddress{Address: "192.168.1.5/24", ValidLifetime: 3600, PreferredLifetime: 1800}
	nodes := cnichain.NodeAddress{Address: "10.0.0.1/24"}
	deprecated := cnichain.NodeAddress{Address: "fd00::1/64", ValidLifetime: math.MaxUint32, PreferredLifetime: 100}
	routes := []cnichain.NodeRoute{
		{Destination: "192.168.1.0/24", Source: "192.168.1.5"},
		{Gateway: "192.168.1.1"},
		{Destination: "10.9.0.0/16", Gateway: "192.168.1.1", OnLink: true},
		{Destination: "10.8.0.0/16", Gateway: "10.0.0.254"},
	}
	neighbours := []cnichain.NodeNeighbor{{IP: "10.0.0.254", MAC: "02:00:00:00:00:01"}}
	config := cnichain.NetworkConfig{Addresses: []cnichain.NodeAddress{lent, nodes, deprecated}, Routes: routes,
		Neighbours: neighbours, TakenAt: 5000}
	shorter, old := lent, deprecated
	shorter.ValidLifetime, shorter.PreferredLifetime, old.PreferredLifetime = 1600, 0, 0
	for now, want := range map[int]cnichain.NetworkConfig{
		5000: config,
		7000: {Addresses: []cnichain.NodeAddress{shorter, nodes, old}, Routes: routes, Neighbours: neighbours, TakenAt: 7000},
		8600: {Addresses: []cnichain.NodeAddress{nodes, old}, Routes: routes[2:], Neighbours: neighbours, TakenAt: 8600},
	} {
		if diff := cmp.Diff(&want, config.At(now)); diff != "" {
			t.Errorf("at %d (-want +got):\n%s", now, diff)
		}
	}
	config.TakenAt = 0 // an earlier driver has not noted it
	if diff := cmp.Diff(config.Addresses, config.At(99999).Addresses); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
