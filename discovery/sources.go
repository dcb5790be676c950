package discovery

import (
	"io/fs"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// Sources provides the data for facts. It is safe for use by one goroutine at a time.
type Sources struct {
	// Sys is a sysfs. It must have been mounted in the network namespace of Links: a sysfs shows the devices of the
	// namespace in which it was mounted, not of its reader. Several goroutines read it concurrently.
	Sys fs.ReadLinkFS
	// Links is the kernel's list of links, routes and addresses.
	Links LinkLister
	// Hardware provides further information on NICs from the kernel. If it is nil, that information is absent.
	Hardware Hardware
	// NodeAddresses are the addresses of the Node object. A link with one of them is infrastructure, like a link with a
	// default route. May be empty.
	NodeAddresses []netip.Addr
}

// LinkLister lists the netlink objects of one network namespace; *netlink.Handle implements it. A dump that changed
// while it was read returns netlink.ErrDumpInterrupted, and Read retries. A nil link and unix.AF_UNSPEC mean all.
type LinkLister interface {
	LinkList() ([]netlink.Link, error)
	RouteList(link netlink.Link, family int) ([]netlink.Route, error)
	AddrList(link netlink.Link, family int) ([]netlink.Addr, error)
}

// Host returns the sources of the host: /sys and the network namespace of the calling thread. The caller closes them.
func Host() (Sources, error) {
	sys, err := openSysfs("/sys")
	if err != nil {
		return Sources{}, err
	}
	kernel, err := openKernel()
	if err != nil {
		sys.Close()
		return Sources{}, err
	}
	return Sources{Sys: sys, Links: kernel, Hardware: kernel}, nil
}

// Close closes the sources that Host opened. Other sources need no Close.
func (s Sources) Close() {
	for _, source := range []any{s.Sys, s.Links} {
		if opened, ok := source.(interface{ Close() }); ok {
			opened.Close()
		}
	}
}
