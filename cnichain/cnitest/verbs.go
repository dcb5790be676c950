package cnitest

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// podAddress returns the address that every plugin assigns to its interface.
func podAddress() netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, 2}) }

// DelayGIDs makes GID tables appear empty for the given number of reads: in the kernel, too, it takes some time for a
// new GID to appear.
func (n *Node) DelayGIDs(readings int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lateGIDs = readings
}

// VerbsDevice implements host.Host. A table has two entries, one for RoCE v1 and one for RoCE v2, for the address of
// each interface in each pod that can use the device. The entries are sorted by pod and interface name.
func (n *Node) VerbsDevice(netns string, asked cnichain.RDMADevice) (string, []cnichain.GIDEntry, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	device := n.rdma[asked.Index]
	if device == nil || n.rdmaMode == cnichain.RDMAExclusive && device.netns != netns {
		return "", nil, unix.ENODEV
	}
	verbs := fmt.Sprintf("uverbs%d", device.number)
	if err := n.fail["gids"]; err != nil {
		return verbs, nil, err
	}
	if n.lateGIDs > 0 {
		n.lateGIDs--
		return verbs, nil, nil
	}
	var table []cnichain.GIDEntry
	for _, pin := range slices.Sorted(maps.Keys(n.pods)) {
		if n.rdmaMode == cnichain.RDMAExclusive && pin != netns {
			continue
		}
		for _, link := range slices.Sorted(maps.Keys(n.pods[pin])) {
			for _, kind := range []string{cnichain.GIDRoCEv1, cnichain.GIDRoCEv2} {
				table = append(table, cnichain.GIDEntry{Port: 1, Index: len(table), Type: kind, Link: link,
					GID: netip.AddrFrom16(podAddress().As16())})
			}
		}
	}
	return verbs, table, nil
}

// Addresses implements host.Host.
func (n *Node) Addresses(netns string) ([]cnichain.LinkAddresses, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var links []cnichain.LinkAddresses
	for _, name := range slices.Sorted(maps.Keys(n.pods[netns])) {
		links = append(links, cnichain.LinkAddresses{Index: n.pods[netns][name].Index, Name: name,
			Addresses: []netip.Addr{podAddress()}})
	}
	return links, n.fail["addresses"]
}
