package discovery

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Sources is where facts come from. It is safe for use by one goroutine at a time.
type Sources struct {
	// Sys is a sysfs. It must have been mounted in the network namespace that Links belongs to: a sysfs shows the
	// devices of the namespace in which it was mounted, not those of its reader.
	Sys fs.ReadLinkFS
	// Links is the kernel's list of links, routes and addresses.
	Links LinkLister
	// NodeAddresses are the addresses by which the cluster knows the node. A link that has one is infrastructure in the
	// same way as a link with a default route. May be empty.
	NodeAddresses []netip.Addr
}

// LinkLister lists what netlink knows of one network namespace; *netlink.Handle is one. A dump that changed while it was
// read is reported with netlink.ErrDumpInterrupted, and Read tries again. A nil link and unix.AF_UNSPEC mean all.
type LinkLister interface {
	LinkList() ([]netlink.Link, error)
	RouteList(link netlink.Link, family int) ([]netlink.Route, error)
	AddrList(link netlink.Link, family int) ([]netlink.Addr, error)
}

// Host returns the sources of the host: /sys and the network namespace of the calling thread. The caller closes them.
func Host() (Sources, error) {
	sys, ok := os.DirFS("/sys").(fs.ReadLinkFS)
	if !ok {
		return Sources{}, errors.New("cannot read symbolic links below /sys: built with a Go release before 1.25")
	}
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return Sources{}, fmt.Errorf("cannot open a netlink socket: %w", err)
	}
	return Sources{Sys: sys, Links: handle}, nil
}

// Close releases what Host opened. Sources that were put together by hand need no Close.
func (s Sources) Close() {
	if handle, ok := s.Links.(*netlink.Handle); ok {
		handle.Close()
	}
}
