package kerneltest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// host is what the tests of this file look at: everything that a chain could leave.
type host struct {
	*testing.T
	pods []string // paths of namespaces
	dirs []string // where plugins and the driver keep files
}

// state describes the kernel and the files, one line each, without what changes by itself.
func (h *host) state() []string {
	h.Helper()
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	h.must(err)
	defer handle.Close()
	lines := h.links("host", handle)
	for _, pod := range h.pods {
		lines = append(lines, h.inPod(pod)...)
	}
	for _, dir := range h.dirs {
		h.must(filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() || remembers(entry.Name()) {
				return nil //nolint:nilerr // a directory that is not there has no files
			}
			lines = append(lines, "file "+path)
			return nil
		}))
	}
	slices.Sort(lines)
	return lines
}

// remembers is true of files that are no leases: host-local keeps its lock and where it will go on.
func remembers(name string) bool {
	return name == "lock" || strings.HasPrefix(name, "last_reserved_ip")
}

func (h *host) inPod(path string) []string {
	namespace, err := netns.GetFromPath(path)
	if err != nil {
		return []string{filepath.Base(path) + " is gone"}
	}
	defer func() { _ = namespace.Close() }()
	handle, err := netlink.NewHandleAt(namespace, unix.NETLINK_ROUTE)
	h.must(err)
	defer handle.Close()
	return h.links(filepath.Base(path), handle)
}

func (h *host) links(where string, handle *netlink.Handle) []string {
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
		lines = append(lines, fmt.Sprintf("%s %s %s mac=%s mtu=%d up=%v alt=%v master=%s", where, link.Type(), attrs.Name,
			attrs.HardwareAddr, attrs.MTU, attrs.Flags&1 != 0, attrs.AltNames, names[attrs.MasterIndex]))
		qdiscs, err := handle.QdiscList(link)
		h.must(err)
		for _, qdisc := range qdiscs {
			if qdisc.Type() != "noqueue" && qdisc.Type() != "pfifo_fast" {
				lines = append(lines, fmt.Sprintf("%s %s qdisc %s", where, attrs.Name, qdisc.Type()))
			}
		}
	}
	return lines
}

// expect compares.
func (h *host) expect(what string, want []string) {
	h.Helper()
	if diff := cmp.Diff(want, h.state()); diff != "" {
		h.Errorf("%s: the host is not as it was (-before +now):\n%s", what, diff)
	}
}

func (h *host) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// veth makes a pair of links on the host, both up, and returns after both have their addresses.
func (h *host) veth(name, peer string) {
	h.Helper()
	h.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, MTU: 1500}, PeerName: peer}))
	for _, end := range []string{name, peer} {
		h.up(end)
	}
}

// bridge makes a bridge with an address of its own: one without takes that of its ports.
func (h *host) bridge(name string) {
	h.Helper()
	h.must(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name, HardwareAddr: []byte{2, 0, 0, 0, 0, 0xb0}}}))
	h.up(name)
}

func (h *host) up(name string) {
	h.Helper()
	link, err := netlink.LinkByName(name)
	h.must(err)
	h.must(netlink.LinkSetUp(link))
}
