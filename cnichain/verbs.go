package cnichain

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// GID types in the notation that applications use. The kernel uses the same string for the first two ("IB/RoCE v1").
const (
	GIDInfiniBand = "IB"
	GIDRoCEv1     = "RoCE v1"
	GIDRoCEv2     = "RoCE v2"
)

// MaxGIDs is the maximum number of GIDs reported for a step. It keeps a device's entry in the claim status below the
// API's limit of 10 KiB.
const MaxGIDs = 32

// VerbsDevice is the information that an application in a pod needs to address an RDMA device.
type VerbsDevice struct {
	// Name is the name of the RDMA device, such as mlx5_3.
	Name string `json:"name"`
	// Verbs is the device's character device below /dev/infiniband, such as uverbs3.
	Verbs string `json:"verbs"`
	// GIDs are the GIDs of the pod's interfaces. For each interface, the preferred GID comes first.
	GIDs []GID `json:"gids,omitempty"`
}

// GID is an entry in the GID table of an RDMA device's port. An application uses the index to select the source address
// and the protocol.
type GID struct {
	// Ports are numbered from 1, and indexes from 0.
	Port  uint32 `json:"port"`
	Index int    `json:"index"`
	// GID consists of eight groups of four hexadecimal digits, as in sysfs.
	GID string `json:"gid"`
	// Type is GIDInfiniBand, GIDRoCEv1 or GIDRoCEv2.
	Type string `json:"type"`
	// Interface is the name of the interface in the pod; empty for InfiniBand, where GIDs are assigned to the port.
	Interface string `json:"interface,omitempty"`
	// Address is the IP address that the GID represents; empty for the GID that the kernel derives from the MAC
	// address.
	Address string `json:"address,omitempty"`
}

// GIDEntry is a nonempty entry in a port's GID table, as reported by the kernel.
type GIDEntry struct {
	Port  uint32
	Index int
	GID   netip.Addr
	Type  string
	// Link is the name of the link that has the address; empty for InfiniBand. The link's network namespace is unknown.
	Link string
}

// LinkAddresses are the addresses of a link in a network namespace.
type LinkAddresses struct {
	Index     int
	Name      string
	MAC       net.HardwareAddr
	Addresses []netip.Addr
}

// FindGIDs returns the entries in an RDMA device's GID table that belong to a pod's links. If RDMA devices are shared,
// the table contains the GIDs of all pods, and names their links but not the links' namespaces. Therefore, an entry is
// attributed to the pod if both its link name and its address match. Entries that cannot be told apart are described in
// ambiguous instead of being returned in found.
func FindGIDs(table []GIDEntry, links []LinkAddresses) (found []GID, ambiguous []string) {
	ofPod := podAddresses(links)
	withoutIndex := func(entry GIDEntry) GIDEntry { entry.Index = 0; return entry }
	seen := map[GIDEntry][]int{}
	for _, entry := range table {
		seen[withoutIndex(entry)] = append(seen[withoutIndex(entry)], entry.Index)
	}
	for _, entry := range table {
		address, isOfPod := ofPod[podAddress{entry.Link, entry.GID}]
		if entry.Type == GIDInfiniBand {
			address, isOfPod = "", true
		}
		if !isOfPod {
			continue
		}
		if same := seen[withoutIndex(entry)]; len(same) > 1 {
			if same[0] == entry.Index && address != "" {
				ambiguous = append(ambiguous, fmt.Sprintf("the entries %v for %s on %s (%s) cannot be distinguished: "+
					"another pod of the node has the same address", same, address, entry.Link, entry.Type))
			}
			continue
		}
		found = append(found, GID{Port: entry.Port, Index: entry.Index, GID: entry.GID.StringExpanded(),
			Type: entry.Type, Interface: entry.Link, Address: address})
	}
	slices.SortFunc(found, compareGIDs)
	return found, ambiguous
}

// podAddress is the key that identifies a pod's entry in the GID table of an Ethernet port.
type podAddress struct {
	link string
	gid  netip.Addr
}

// podAddresses maps each GID table entry that the links may have to its IP address, or to "" for the entry derived from
// the MAC address. It returns a map for fast lookups, since an application may add any number of addresses to its
// links.
func podAddresses(links []LinkAddresses) map[podAddress]string {
	addresses := map[podAddress]string{}
	for _, link := range links {
		if link.Name == "" {
			continue
		}
		addresses[podAddress{link.Name, defaultGID(link.MAC)}] = ""
		for _, address := range link.Addresses {
			addresses[podAddress{link.Name, netip.AddrFrom16(address.As16())}] = address.Unmap().String()
		}
	}
	return addresses
}

// defaultGID returns the GID that the kernel derives from a MAC address for every Ethernet port: a link-local address
// with a modified EUI-64 (RFC 4291, appendix A; make_default_gid in drivers/infiniband/core/roce_gid_mgmt.c).
func defaultGID(mac net.HardwareAddr) netip.Addr {
	if len(mac) != 6 {
		return netip.Addr{}
	}
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe,
		13: mac[3], 14: mac[4], 15: mac[5]})
}

// compareGIDs orders GIDs by interface, and within each interface as applications usually prefer them: RoCE v2 (which
// is routable) before other types, other addresses before link-local addresses, and IPv4 before IPv6.
func compareGIDs(a, b GID) int {
	rank := func(g GID) int {
		address, err := netip.ParseAddr(g.Address)
		switch {
		case err != nil || address.IsLinkLocalUnicast():
			return 2
		case address.Is6():
			return 1
		}
		return 0
	}
	kind := func(g GID) int { return slices.Index([]string{GIDRoCEv2, GIDInfiniBand, GIDRoCEv1}, g.Type) }
	return cmp.Or(strings.Compare(a.Interface, b.Interface), cmp.Compare(kind(a), kind(b)),
		cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Index, b.Index))
}

// WithoutGID returns the addresses that have no GID on the links with the given indexes, formatted as "address on
// link". It omits link-local addresses, for which the kernel creates a GID even if the link does not have the address.
func WithoutGID(devices []VerbsDevice, links []LinkAddresses, indexes []int) (without []string) {
	stands := map[GID]bool{}
	for _, device := range devices {
		for _, gid := range device.GIDs {
			if gid.Type == GIDInfiniBand {
				return nil // with InfiniBand, addresses have no GIDs
			}
			stands[GID{Interface: gid.Interface, Address: gid.Address}] = true
		}
	}
	for _, link := range links {
		for _, address := range link.Addresses {
			address = address.Unmap()
			if slices.Contains(indexes, link.Index) && !address.IsLinkLocalUnicast() && !address.IsLoopback() &&
				!stands[GID{Interface: link.Name, Address: address.String()}] {
				without = append(without, address.String()+" on "+link.Name)
			}
		}
	}
	slices.Sort(without)
	return without
}
