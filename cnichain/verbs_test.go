package cnichain

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func entry(index int, address, kind, link string) GIDEntry {
	return GIDEntry{Port: 1, Index: index, GID: netip.AddrFrom16(netip.MustParseAddr(address).As16()), Type: kind,
		Link: link}
}

func podLink(name string, addresses ...string) LinkAddresses {
	link := LinkAddresses{Index: 7, Name: name, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}}
	for _, address := range addresses {
		link.Addresses = append(link.Addresses, netip.MustParseAddr(address))
	}
	return link
}

// FindGIDs returns the entries for the pod's own links, with the preferred entry first.
func TestGIDsOfAPod(t *testing.T) {
	const linkLocal = "fe80::ff:fe00:1" // from 02:00:00:00:00:01
	both := []LinkAddresses{podLink("net1", "fd00::1", "10.0.0.1", "fe80::abcd"), podLink("net1.7", "10.7.0.1")}
	table := []GIDEntry{
		entry(0, linkLocal, GIDRoCEv1, "net1"), entry(1, linkLocal, GIDRoCEv2, "net1"),
		entry(2, "fd00::1", GIDRoCEv1, "net1"), entry(3, "fd00::1", GIDRoCEv2, "net1"),
		entry(4, "10.0.0.1", GIDRoCEv1, "net1"), entry(5, "10.0.0.1", GIDRoCEv2, "net1"),
		entry(6, "10.7.0.1", GIDRoCEv2, "net1.7"),
	}
	for name, test := range map[string]struct {
		table []GIDEntry
		links []LinkAddresses
		want  []string
	}{
		"all of a device of its own": {table, both, []string{
			"5 RoCE v2 net1 10.0.0.1", "3 RoCE v2 net1 fd00::1", "1 RoCE v2 net1 ", "4 RoCE v1 net1 10.0.0.1",
			"2 RoCE v1 net1 fd00::1", "0 RoCE v1 net1 ", "6 RoCE v2 net1.7 10.7.0.1",
		}},
		"others' on a shared device": {[]GIDEntry{
			entry(0, linkLocal, GIDRoCEv2, "eth0"), entry(1, "10.0.0.1", GIDRoCEv2, "net2"),
			entry(2, "10.0.0.9", GIDRoCEv2, "net1"), entry(9, "10.0.0.1", GIDRoCEv2, "net1"),
		}, both, []string{"9 RoCE v2 net1 10.0.0.1"}},
		"without a link": {[]GIDEntry{entry(0, "10.0.0.1", GIDRoCEv2, "")},
			[]LinkAddresses{podLink("", "10.0.0.1")}, nil},
		"InfiniBand": {[]GIDEntry{entry(0, "fe80::1:2:3:4", GIDInfiniBand, "")}, both, []string{"0 IB  "}},
		"IPv4-mapped address": {table[5:6], []LinkAddresses{podLink("net1", "::ffff:10.0.0.1")},
			[]string{"5 RoCE v2 net1 10.0.0.1"}},
		"empty": {nil, both, nil},
	} {
		t.Run(name, func(t *testing.T) {
			found, ambiguous := FindGIDs(test.table, test.links)
			var have []string
			for _, gid := range found {
				have = append(have, fmt.Sprint(gid.Index, " ", gid.Type, " ", gid.Interface, " ", gid.Address))
			}
			if diff := cmp.Diff(test.want, have); diff != "" || len(ambiguous) > 0 {
				t.Errorf("GIDs (-want +got):\n%s\nambiguous %q, want none", diff, ambiguous)
			}
		})
	}
	if found, _ := FindGIDs(table[5:6], both); found[0].GID != "0000:0000:0000:0000:0000:ffff:0a00:0001" {
		t.Errorf("the GID %q is not in the format of sysfs", found[0].GID)
	}
}

// If two pods on one RDMA device have the same address on links with the same name, neither pod gets the other pod's
// entry.
func TestGIDsThatCannotBeToldApart(t *testing.T) {
	table := []GIDEntry{entry(2, "10.0.0.1", GIDRoCEv2, "net1"), entry(3, "fd00::1", GIDRoCEv2, "net1"),
		entry(8, "10.0.0.1", GIDRoCEv2, "net1"), entry(9, "10.0.0.1", GIDRoCEv1, "net1")}
	found, ambiguous := FindGIDs(table, []LinkAddresses{podLink("net1", "10.0.0.1", "fd00::1")})
	if len(found) != 2 || found[0].Index != 3 || found[1].Index != 9 {
		t.Errorf("wrong GIDs: %+v", found)
	}
	if len(ambiguous) != 1 || !strings.Contains(ambiguous[0], "the entries [2 8] for 10.0.0.1 on net1 (RoCE v2)") {
		t.Errorf("ambiguous GIDs = %q, want the entries for 10.0.0.1", ambiguous)
	}
	table[2].Port = 2
	if found, ambiguous := FindGIDs(table, []LinkAddresses{podLink("net1", "10.0.0.1")}); len(found) != 3 ||
		len(ambiguous) != 0 {
		t.Errorf("two ports: found %+v, ambiguous %q, want three and none", found, ambiguous)
	}
}

func TestAddressesWithoutGID(t *testing.T) {
	links := []LinkAddresses{podLink("net1", "10.0.0.1", "fd00::1", "fe80::1"), podLink("lo", "127.0.0.1")}
	links[1].Index = 1
	with := []VerbsDevice{{}, {GIDs: []GID{{Type: GIDRoCEv1, Interface: "net1", Address: "10.0.0.1"}}}}
	for name, test := range map[string]struct {
		devices []VerbsDevice
		indexes []int
		want    string
	}{
		"one lacks":              {with, []int{7}, "[fd00::1 on net1]"},
		"link of another device": {with, []int{8}, "[]"},
		"none yet":               {nil, []int{7, 1}, "[10.0.0.1 on net1 fd00::1 on net1]"},
		"InfiniBand":             {[]VerbsDevice{{GIDs: []GID{{Type: GIDInfiniBand}}}}, []int{7}, "[]"},
	} {
		if have := fmt.Sprint(WithoutGID(test.devices, links, test.indexes)); have != test.want {
			t.Errorf("%s: got %s, want %s", name, have, test.want)
		}
	}
}
