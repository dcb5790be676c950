package discovery

import (
	"io/fs"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// Sources provides the data from which facts are read. It must only be used by one goroutine at a time.
type Sources struct {
	// Sys is a sysfs. It must have been mounted in the network namespace of Links: a sysfs shows the devices of the
	// namespace in which it was mounted, not of its reader. Several goroutines read from it concurrently.
	Sys fs.ReadLinkFS
	// Links lists the kernel's links, routes and addresses.
	Links LinkLister
	// Hardware provides further information about NICs from the kernel. If it is nil, that information is absent.
	Hardware Hardware
	// NodeAddresses contains the addresses of the Node object. A link with one of these addresses is infrastructure,
	// like a link with a default route. It may be empty.
	NodeAddresses []netip.Addr
}

// LinkLister lists the netlink objects in a network namespace; *netlink.Handle implements it. If a dump changes while
// it is read, the error is netlink.ErrDumpInterrupted, and Read retries. A nil link and unix.AF_UNSPEC mean all.
type LinkLister interface {
	LinkList() ([]netlink.Link, error)
	RouteList(link netlink.Link, family int) ([]netlink.Route, error)
	AddrList(link netlink.Link, family int) ([]netlink.Addr, error)
}

// Host returns the sources for the host: /sys and the network namespace of the calling thread. The caller must close
// them.
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

// Close closes sources that were opened by Host. Other sources need not be closed.
func (s Sources) Close() {
	for _, source := range []any{s.Sys, s.Links} {
		if opened, ok := source.(interface{ Close() }); ok {
			opened.Close()
		}
	}
}
