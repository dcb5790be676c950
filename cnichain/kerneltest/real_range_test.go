package kerneltest

import (
	"testing"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/addresses"
	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

const realRanged = `[{name: link, type: macvlan, addressRange: r, config: {mode: bridge, ipam: {type: host-local}}}]`

// block makes plans use addresses from one particular block of a range, as if the other blocks were full.
func (l *realLab) block(index int) {
	l.Helper()
	r, problems := addresses.Parse(&v1alpha1.AddressRangeSpec{CIDRs: []string{"10.60.0.0/24", "fd00:60::/120"},
		BlockSize: 4, Exclude: []string{"10.60.0.9", "fd00:60::b"}})
	if len(problems) > 0 {
		l.Fatal(problems)
	}
	block, err := addresses.ParseBlock(&v1alpha1.AddressBlock{Spec: r.Spec("r", index)})
	l.must(err)
	l.blocks = map[string][]cnichain.BlockRoom{"r": {{Block: block, Room: block.Size}}}
}

// TestRealAddressRange checks that host-local assigns exactly the addresses in a block. The node's blocks change while
// the network name stays the same, so leases from earlier blocks must be kept, and must be released correctly.
func TestRealAddressRange(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	l := newRealLab(t, nil)
	l.uplink("up0")
	pod := func(name string, block int) *realPod {
		l.block(block)
		return l.pod(name, l.plan(name, realRanged, l.shared("link", "up0")))
	}
	first := []*realPod{pod("a", 0), pod("b", 0)} // the range begins with the network and gateway addresses
	second := []*realPod{pod("d", 2), pod("e", 2), pod("f", 2)}
	none, never, again := pod("c", 0), pod("g", 2), pod("h", 2)
	before := l.state()
	for _, p := range first {
		p.add()
	}
	first[0].has("net1 macvlan mtu=1500 up=true 10.60.0.2/24 fd00:60::2/120")
	first[1].has("net1 macvlan mtu=1500 up=true 10.60.0.3/24 fd00:60::3/120")
	none.refused("no IP addresses available")
	for _, p := range second {
		p.add()
	}
	second[0].has("net1 macvlan mtu=1500 up=true 10.60.0.8/24 fd00:60::8/120")
	second[1].has("net1 macvlan mtu=1500 up=true 10.60.0.10/24 fd00:60::9/120")
	second[2].has("net1 macvlan mtu=1500 up=true 10.60.0.11/24 fd00:60::a/120")
	never.refused("no IP addresses available")
	first[0].reaches("10.60.0.2", second[2], "10.60.0.11")
	first[1].reaches("fd00:60::3", second[1], "fd00:60::9")
	first[0].del() // DEL uses the configuration with the pod's own block
	second[1].del()
	again.add()
	again.has("net1 macvlan mtu=1500 up=true 10.60.0.10/24 fd00:60::9/120")
	again.healthy()
	for _, p := range []*realPod{first[1], second[0], second[2], again} {
		p.del()
	}
	l.expect(before)
	l.empty()
}
