package cnichain_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// A leased address keeps its original expiry time when it is restored.
func TestNetworkConfigLater(t *testing.T) {
	t.Parallel()
	lent := cnichain.NodeAddress{Address: "192.168.1.5/24", ValidLifetime: 3600, PreferredLifetime: 1800}
	nodes := cnichain.NodeAddress{Address: "10.0.0.1/24"}
	deprecated := cnichain.NodeAddress{Address: "fd00::1/64", ValidLifetime: math.MaxUint32, PreferredLifetime: 100}
	routes := []cnichain.NodeRoute{
		{Destination: "192.168.1.0/24", Source: "192.168.1.5", Table: 254},
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
		7000: {Addresses: []cnichain.NodeAddress{shorter, nodes, old}, Routes: routes, Neighbours: neighbours,
			TakenAt: 7000},
		8600: {Addresses: []cnichain.NodeAddress{nodes, old}, Routes: routes[2:], Neighbours: neighbours, TakenAt: 8600},
	} {
		if diff := cmp.Diff(&want, config.Remaining(now, nil)); diff != "" {
			t.Errorf("at %d (-want +got):\n%s", now, diff)
		}
	}
	config.TakenAt = 0 // as in a record from an earlier driver version
	if diff := cmp.Diff(config.Addresses, config.Remaining(99999, nil).Addresses); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A route is kept if another address still makes it valid. It is dropped if its gateway was reachable only through the
// network of an expired address.
func TestRoutesOfEndedAddresses(t *testing.T) {
	t.Parallel()
	toGateway := cnichain.NodeRoute{Destination: "10.60.0.0/16", Gateway: "192.168.60.1"}
	lent := cnichain.NodeAddress{Address: "192.168.60.2/24", ValidLifetime: 10}
	single := cnichain.NodeAddress{Address: "10.0.0.2/32", ValidLifetime: 10}
	for name, test := range map[string]struct {
		addresses, present []cnichain.NodeAddress
		routes             []cnichain.NodeRoute
		want               int // number of routes that remain, starting with the first
	}{
		"another address of the network": {addresses: []cnichain.NodeAddress{lent, {Address: "192.168.60.3/24"}},
			routes: []cnichain.NodeRoute{toGateway}, want: 1},
		"the address is lent again": {addresses: []cnichain.NodeAddress{lent},
			present: []cnichain.NodeAddress{{Address: "192.168.60.2/24", ValidLifetime: 3600}},
			routes:  []cnichain.NodeRoute{{Destination: "10.1.0.0/16", Source: "192.168.60.2"}, toGateway}, want: 2},
		"another address exists": {addresses: []cnichain.NodeAddress{lent},
			present: []cnichain.NodeAddress{{Address: "192.168.60.9/24"}}, routes: []cnichain.NodeRoute{toGateway},
			want: 1},
		"a gateway beyond a route that goes": {addresses: []cnichain.NodeAddress{single}, routes: []cnichain.NodeRoute{
			{Destination: "172.31.1.1/32", Source: "10.0.0.2"}, {Destination: "10.9.0.0/16", Gateway: "172.31.1.1"}}},
		"a gateway beyond a route that stays": {addresses: []cnichain.NodeAddress{single}, routes: []cnichain.NodeRoute{
			{Destination: "172.31.1.1/32"}, {Destination: "10.9.0.0/16", Gateway: "172.31.1.1"}}, want: 2},
		"a peer": {addresses: []cnichain.NodeAddress{{Address: "10.0.0.2/32", Peer: "10.0.0.1/32", ValidLifetime: 10}},
			routes: []cnichain.NodeRoute{{Destination: "10.5.0.0/16", Gateway: "10.0.0.1"}}},
		"a gateway that is reached in another table": {addresses: []cnichain.NodeAddress{lent},
			routes: []cnichain.NodeRoute{{Destination: "192.168.60.0/24", Table: 100},
				{Destination: "10.60.0.0/16", Gateway: "192.168.60.1", Table: 254}}, want: 1},
		"a gateway in an unrecorded network": {addresses: []cnichain.NodeAddress{lent},
			routes: []cnichain.NodeRoute{{Destination: "2001:db8:100::/48", Gateway: "2001:db8::1", Table: 254}},
			want:   1},
		"the kernel's own of IPv6": {addresses: []cnichain.NodeAddress{{Address: "fd00::2/64", ValidLifetime: 10}},
			routes: []cnichain.NodeRoute{{Destination: "fd00::/64", Protocol: 2}}},
		"a router of IPv6": {addresses: []cnichain.NodeAddress{{Address: "fd00::2/64", ValidLifetime: 10}},
			routes: []cnichain.NodeRoute{{Gateway: "fe80::1"}}, want: 1},
	} {
		config := cnichain.NetworkConfig{Addresses: test.addresses, Routes: test.routes, TakenAt: 1}
		left := config.Remaining(100, test.present).Routes
		if diff := cmp.Diff(test.routes[:test.want], left, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
