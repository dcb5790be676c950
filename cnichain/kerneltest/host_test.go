package kerneltest

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// testHost collects the state that tests compare: everything that a chain could leave behind.
type testHost struct {
	*testing.T
	pods []string // paths of namespaces
	dirs []string // directories where plugins and the driver store files
}

// state describes everything that a chain could leave behind: links, addresses, routes, rules and queues on the host
// and in the pods, packet filters, and files. Each line has the form "where kind link details". The lines are sorted.
// Anything that the kernel changes on its own is omitted.
func (h *testHost) state() []string {
	h.Helper()
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	h.must(err)
	defer handle.Close()
	lines := append(h.network("host", handle), h.filters()...)
	for _, pod := range h.pods {
		h.must(inPod(pod, func(inside *netlink.Handle) error {
			lines = append(lines, h.network(filepath.Base(pod), inside)...)
			return nil
		}))
	}
	lines = append(lines, h.files(h.dirs...)...)
	slices.Sort(lines)
	return lines
}

func (h *testHost) network(where string, handle *netlink.Handle) []string {
	h.Helper()
	links, err := handle.LinkList()
	h.must(err)
	names := map[int]string{0: "-"}
	for _, link := range links {
		names[link.Attrs().Index] = link.Attrs().Name
	}
	var lines []string
	for _, link := range links {
		attrs := link.Attrs()
		slices.Sort(attrs.AltNames)
		lines = append(lines,
			fmt.Sprintf("%s link %s %s mac=%s mtu=%d up=%v alt=%v master=%s queue=%d promisc=%d allmulti=%v",
				where, attrs.Name, link.Type(), attrs.HardwareAddr, attrs.MTU, attrs.Flags&net.FlagUp != 0,
				attrs.AltNames,
				names[attrs.MasterIndex], attrs.TxQLen, attrs.Promisc, attrs.RawFlags&unix.IFF_ALLMULTI != 0))
		addresses, err := handle.AddrList(link, netlink.FAMILY_ALL)
		h.must(err)
		for _, address := range addresses {
			if !address.IP.IsLinkLocalUnicast() { // these appear some time after the link has a carrier
				lines = append(lines, fmt.Sprintf("%s address %s %s", where, attrs.Name, address.IPNet))
			}
		}
		queues, err := handle.QdiscList(link)
		h.must(err)
		for _, queue := range queues {
			if queue.Type() == "noqueue" {
				continue // equivalent to no queue, but visible only once the link has been up
			}
			lines = append(lines, fmt.Sprintf("%s queue %s %s parent %s", where, attrs.Name, queue.Type(),
				netlink.HandleStr(queue.Attrs().Parent)))
		}
	}
	return append(lines, h.routing(where, handle, names)...)
}

func (h *testHost) routing(where string, handle *netlink.Handle, names map[int]string) []string {
	h.Helper()
	routes, err := handle.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_UNSPEC},
		netlink.RT_FILTER_TABLE)
	h.must(err)
	var lines []string
	for _, route := range routes {
		if route.Dst != nil && (route.Dst.IP.IsLinkLocalUnicast() || route.Dst.IP.IsMulticast()) &&
			route.Dst.IP.To4() == nil {
			continue // appears and disappears with the addresses that are omitted above
		}
		if route.Table == unix.RT_TABLE_LOCAL && route.Dst != nil && route.Dst.IP.To4() == nil {
			continue // follows from an address above, after duplicate address detection (RFC 4862, 5.4)
		}
		lines = append(lines, fmt.Sprintf("%s route %s table %d to %s via %s src %s scope %s", where,
			names[route.LinkIndex], route.Table,
			route.Dst, route.Gw, route.Src, route.Scope))
	}
	rules, err := handle.RuleList(netlink.FAMILY_ALL)
	h.must(err)
	for _, rule := range rules {
		lines = append(lines, fmt.Sprintf("%s rule - %s", where, rule))
	}
	return lines
}

// filters returns the host's packet filter rules, without counters.
func (h *testHost) filters() []string {
	h.Helper()
	nft, err := exec.LookPath("nft")
	if err != nil {
		return nil // plugins cannot create filters then, and tests that need them are skipped
	}
	output, err := exec.Command(nft, "--stateless", "list", "ruleset").CombinedOutput()
	if err != nil && strings.Contains(string(output), "cache initialization failed") {
		return nil // the kernel does not support nf_tables
	}
	if err != nil {
		h.Fatalf("nft: %v: %s", err, output)
	}
	var lines, path []string
	for line := range strings.Lines(string(output)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
		case strings.HasSuffix(line, "{"):
			path = append(path, strings.TrimSpace(strings.TrimSuffix(line, "{")))
			lines = append(lines, "host filter "+strings.Join(path, ": "))
		case line == "}":
			path = path[:len(path)-1]
		default:
			lines = append(lines, "host filter "+strings.Join(path, ": ")+": "+line)
		}
	}
	return lines
}

// files returns the files below the directories, except those that plugins never remove.
func (h *testHost) files(dirs ...string) []string {
	h.Helper()
	var lines []string
	for _, dir := range dirs {
		h.must(filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case os.IsNotExist(err):
				return nil
			case err != nil:
				return err
			case path == realJournal:
				return filepath.SkipDir
			case entry.IsDir():
				return nil // host-local and tuning keep their empty directories
			case entry.Name() == "lock" || strings.HasPrefix(entry.Name(), "last_reserved_ip."):
				return nil // host-local's lock and position files, which are not leases
			case entry.Name() == "xtables.lock":
				return nil // used by iptables
			}
			lines = append(lines, "host file "+path)
			return nil
		}))
	}
	return lines
}

// expect compares the current state with the expected one.
func (h *testHost) expect(what string, want []string) {
	h.Helper()
	if diff := cmp.Diff(want, h.state()); diff != "" {
		h.Errorf("%s: the host is not in its original state (-before +now):\n%s", what, diff)
	}
}

func (h *testHost) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// veth creates a pair of links on the host, sets both up, and returns once both have their addresses.
func (h *testHost) veth(name, peer string) {
	h.Helper()
	h.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, MTU: 1500}, PeerName: peer}))
	for _, end := range []string{name, peer} {
		h.up(end)
	}
}

// bridge creates a bridge with a fixed address, since a bridge without one adopts a port's address.
func (h *testHost) bridge(name string) {
	h.Helper()
	h.must(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name,
		HardwareAddr: []byte{2, 0, 0, 0, 0, 0xb0}}}))
	h.up(name)
}

func (h *testHost) up(name string) {
	h.Helper()
	link, err := netlink.LinkByName(name)
	h.must(err)
	h.must(netlink.LinkSetUp(link))
}
