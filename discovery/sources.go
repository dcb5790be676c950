package discovery

import (
	"io/fs"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// Sources provides the data that facts are read from. It must only be used by one goroutine at a time.
type Sources struct {
	// Sys is a sysfs. It must have been mounted in the same network namespace that Links uses: a sysfs shows the
	// devices in the namespace that it was mounted in, not the devices in its reader's namespace. Several goroutines
	// read from it concurrently.
	Sys fs.ReadLinkFS
	// Links lists the kernel's links, routes and addresses.
	Links LinkLister
	// Hardware provides further information about NICs from the kernel. It may be nil if that information is not
	// available.
	Hardware Hardware
	// NodeAddresses contains the addresses in the Node object. Like a link with a default route, a link with one of
	// these addresses is infrastructure. NodeAddresses may be empty.
	NodeAddresses []netip.Addr
}

// LinkLister lists the netlink objects in a network namespace; *netlink.Handle implements it. If the objects change
// during a dump, the error is netlink.ErrDumpInterrupted, and Read retries. A nil link means all links, and
// unix.AF_UNSPEC means all address families.
type LinkLister interface {
	LinkList() ([]netlink.Link, error)
	RouteList(link netlink.Link, family int) ([]netlink.Route, error)
	AddrList(link netlink.Link, family int) ([]netlink.Addr, error)
}

// Host returns the host's sources: /sys and the calling thread's network namespace. The caller must close them.
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

// Close closes sources returned by Host. Other sources do not need to be closed.
func (s Sources) Close() {
	for _, source := range []any{s.Sys, s.Links} {
		if opened, ok := source.(interface{ Close() }); ok {
			opened.Close()
		}
	}
}
