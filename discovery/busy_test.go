package discovery_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
)

func TestBusy(t *testing.T) {
	host := discoverytest.NewHost()
	for i, name := range []string{"free", "port", "below", "route", "ring"} {
		address := "0000:01:00." + string(rune('0'+i))
		host.Function(address)
		host.NIC(name, address)
	}
	host.Virtual(discovery.RecordedLink{Name: "br0", Kind: "bridge"})
	host.Virtual(discovery.RecordedLink{Name: "below.7", Kind: "vlan", Parent: host.Link("below").Index, VLANID: 7})
	host.Enslave("port", "br0")
	host.DefaultRoute("route")
	// For some kinds of upper links, such as HSR, netlink has no attribute that discovery knows.
	host.WriteFiles(host.Dir("0000:01:00.4")+"/net/ring", "upper_hsr0=")
	for name, want := range map[discovery.IfName]string{
		"free": "", "absent": "", "port": "a port of the bridge br0", "below": "the vlan below.7 is on top of it",
		"route": "default route", "ring": "the link hsr0 is on top of it",
	} {
		uses, err := discovery.Busy(context.Background(), host.Sources(), "free", name)
		got := uses[name]
		if err != nil || got.Restorable || (want == "") != (got.Reason == "") || !strings.Contains(got.Reason, want) {
			t.Errorf("%s: got %+v, %v; want reason %q", name, got, err, want)
		}
	}
}

// tables is a simulated kernel with addresses, routes and rules.
type tables struct {
	discovery.LinkLister
	addresses []netlink.Addr
	routes    []netlink.Route
	rules     []netlink.Rule
	neighbors []netlink.Neigh
	queues    []netlink.Qdisc
	settings  map[int][]string
}

func (k tables) AddrList(netlink.Link, int) ([]netlink.Addr, error) { return k.addresses, nil }

func (k tables) LinksAround([]discovery.IfName) ([]netlink.Link, error) { return k.LinkList() }

func (k tables) Routes(int) ([]netlink.Route, error) { return k.routes, nil }

func (k tables) RuleList(int) ([]netlink.Rule, error) { return k.rules, nil }

func (k tables) NeighList(index, _ int) ([]netlink.Neigh, error) {
	return slices.DeleteFunc(slices.Clone(k.neighbors), func(n netlink.Neigh) bool { return n.LinkIndex != index }), nil
}

func (k tables) QdiscList(link netlink.Link) ([]netlink.Qdisc, error) {
	return slices.DeleteFunc(slices.Clone(k.queues),
		func(q netlink.Qdisc) bool { return q.Attrs().LinkIndex != link.Attrs().Index }), nil
}

func (k tables) Settings(link netlink.Link) ([]string, error) {
	return k.settings[link.Attrs().Index], nil
}

func network(text string) *net.IPNet {
	ip, parsed, err := net.ParseCIDR(text)
	if err != nil {
		panic(err)
	}
	parsed.IP = ip
	return parsed
}

// Not only the node's own traffic but also its configuration on a link counts as a use. This configuration can be
// restored unless it is lost when the link moves to another namespace.
func TestBusyWithAddressesAndRoutes(t *testing.T) {
	host := discoverytest.Machine(1, 2)
	index := func(name string) int { return host.Link(name).Index }
	host.Virtual(discovery.RecordedLink{Name: "br0", Kind: "bridge"})
	kernel := func(dst string) netlink.Route {
		return netlink.Route{LinkIndex: index("ens0"), Dst: network(dst), Protocol: unix.RTPROT_KERNEL,
			Table: unix.RT_TABLE_MAIN}
	}
	for name, test := range map[string]struct {
		kernel tables
		link   discovery.IfName
		want   string
		lost   bool // true if it cannot be restored
	}{
		"nothing": {link: "ens0"},
		"link-local": {link: "ens0",
			kernel: tables{addresses: []netlink.Addr{{IPNet: network("fe80::1/64"), LinkIndex: index("ens0")}},
				routes: []netlink.Route{kernel("fe80::/64"), kernel("ff00::/8")}}},
		"address": {link: "ens0",
			kernel: tables{addresses: []netlink.Addr{{IPNet: network("192.168.50.2/24"), LinkIndex: index("ens0")}}},
			want:   "has the address 192.168.50.2/24"},
		"another's": {link: "ens0",
			kernel: tables{addresses: []netlink.Addr{{IPNet: network("192.168.50.2/24"), LinkIndex: index("br0")}}}},
		"route": {link: "ens0",
			kernel: tables{routes: []netlink.Route{{LinkIndex: index("ens0"), Dst: network("10.200.0.0/16"),
				Table: 100}}}, want: "a route to 10.200.0.0/16 in table 100"},
		"second default": {link: "ens0",
			kernel: tables{routes: []netlink.Route{{LinkIndex: index("ens0"), Table: 100}}},
			want:   "a route to everything in table 100"},
		"several ways": {link: "ens0",
			kernel: tables{routes: []netlink.Route{{Dst: network("10.200.0.0/16"),
				MultiPath: []*netlink.NexthopInfo{{LinkIndex: index("ens0")}}}}}, want: "a path of the multipath " +
				"route to 10.200.0.0/16", lost: true},
		"rule": {link: "ens0", kernel: tables{rules: []netlink.Rule{{Priority: 77, OifName: "ens0"}}},
			want: "rule with priority 77 refers to it"},
		"permanent neighbour": {link: "ens0",
			kernel: tables{neighbors: []netlink.Neigh{{LinkIndex: index("ens0"), State: unix.NUD_PERMANENT,
				IP: net.IPv4(10, 0, 0, 9)}}}, want: "permanent neighbor 10.0.0.9"},
		"learned neighbour": {link: "ens0",
			kernel: tables{neighbors: []netlink.Neigh{{LinkIndex: index("ens0"), State: unix.NUD_REACHABLE,
				IP: net.IPv4(10, 0, 0, 9)}}}},
		"queueing discipline": {link: "ens0",
			kernel: tables{queues: []netlink.Qdisc{&netlink.Fq{QdiscAttrs: netlink.QdiscAttrs{
				LinkIndex: index("ens0"), Handle: netlink.MakeHandle(7, 0)}}}},
			want: "queueing discipline fq 7:0", lost: true},
		"queueing discipline of the kernel": {link: "ens0",
			kernel: tables{queues: []netlink.Qdisc{&netlink.Fq{QdiscAttrs: netlink.QdiscAttrs{
				LinkIndex: index("ens0")}}}}},
		"next hop": {link: "ens0", kernel: tables{settings: map[int][]string{index("ens0"): {"the next hop 7 uses it"}}},
			want: "next hop 7", lost: true},
		"next hop of another": {link: "ens0",
			kernel: tables{settings: map[int][]string{index("br0"): {"the next hop 7 uses it"}}}},
		"of its VF": {link: "ens0",
			kernel: tables{addresses: []netlink.Addr{{IPNet: network("192.168.50.2/24"), LinkIndex: index("ens0v0")}}},
			want:   "its function ens0v0: it has the address", lost: true},
		"of the VF": {link: "ens0v0",
			kernel: tables{addresses: []netlink.Addr{{IPNet: network("192.168.50.2/24"), LinkIndex: index("ens0v0")}}},
			want:   "it has the address"},
		"of its PF": {link: "ens0v1",
			kernel: tables{addresses: []netlink.Addr{{IPNet: network("192.168.50.2/24"), LinkIndex: index("ens0")}}}},
	} {
		sources := host.Sources()
		test.kernel.LinkLister = sources.Links
		sources.Links = test.kernel
		uses, err := discovery.Busy(t.Context(), sources, test.link)
		got := uses[test.link]
		if err != nil || (test.want == "") != (got.Reason == "") || !strings.Contains(got.Reason, test.want) ||
			got.Restorable != (test.want != "" && !test.lost) {
			t.Errorf("%s: got %+v, %v; want reason %q", name, got, err, test.want)
		}
	}
}

// A physical function is in use if the node uses one of its virtual functions.
func TestPhysicalFunctionOfVFsInUse(t *testing.T) {
	for name, use := range map[string]func(*discoverytest.Host){
		"default route": func(h *discoverytest.Host) { h.DefaultRoute("ens0v0") },
		"port of the bridge br0": func(h *discoverytest.Host) {
			h.Virtual(discovery.RecordedLink{Name: "br0", Kind: "bridge"})
			h.Enslave("ens0v1", "br0")
		},
		"vlan stor0 is on top of it": func(h *discoverytest.Host) {
			h.Virtual(discovery.RecordedLink{Name: "stor0", Kind: "vlan", Parent: h.Link("ens0v0").Index, VLANID: 7})
		},
	} {
		host := discoverytest.Machine(1, 2)
		use(host)
		uses, err := discovery.Busy(t.Context(), host.Sources(), "ens0")
		got := uses["ens0"]
		if err != nil || !strings.Contains(got.Reason, "its function ens0v") ||
			!strings.Contains(got.Reason, name) || got.Restorable {
			t.Errorf("%s: got %+v, %v; want its function as the reason", name, got, err)
		}
	}
	host := discoverytest.Machine(1, 2)
	host.DefaultRoute("ens0v0")
	for _, d := range readFrom(t, host.Sources()).Devices {
		if want := d.Name == "ens0" || d.Name == "ens0v0"; d.DefaultRoute != want {
			t.Errorf("%s: wrong defaultRoute: %v", d.Name, d.DefaultRoute)
		}
	}
}

// A physical function is in use if the node uses one of its scalable functions.
func TestPhysicalFunctionOfScalableFunctionsInUse(t *testing.T) {
	host := discoverytest.ScalableFunctions()
	host.Virtual(discovery.RecordedLink{Name: "br0", Kind: "bridge"})
	host.Enslave("enp3s0f0s1", "br0")
	uses, err := discovery.Busy(t.Context(), host.Sources(), "p0", "p1")
	if got := uses["p0"]; err != nil || !strings.Contains(got.Reason, "its function enp3s0f0s1: it is a port") {
		t.Errorf("p0: got %+v, %v, want its function enp3s0f0s1 as the reason", got, err)
	}
	if got := uses["p1"]; got.Reason != "" {
		t.Errorf("p1 is in use, want it free: %+v", got)
	}
}
