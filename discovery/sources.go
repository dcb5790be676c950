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
	sys, err := openSysfs("/sys")
	if err != nil {
		return Sources{}, err
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

// directory is a directory of the machine whose files are small and complete in one read, as those of sysfs are: a show
// function of the kernel fills at most one page. Reading them with package os takes twice as many system calls, which on
// machines with thousands of functions is most of the time that a reading takes.
type directory struct {
	fs.ReadLinkFS
	root string
}

// openSysfs returns the sysfs that is mounted at root.
func openSysfs(root string) (fs.ReadLinkFS, error) {
	links, ok := os.DirFS(root).(fs.ReadLinkFS)
	if !ok {
		return nil, errors.New("cannot read symbolic links of sysfs: built with a Go release before 1.25")
	}
	return directory{links, root}, nil
}

// ReadFile implements fs.ReadFileFS.
func (d directory) ReadFile(name string) ([]byte, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	file, err := retried(func() (int, error) {
		return unix.Open(d.root+"/"+name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer func() { _ = unix.Close(file) }() // nothing was written
	buffer := make([]byte, 512)
	for filled := 0; ; {
		count, err := retried(func() (int, error) { return unix.Read(file, buffer[filled:]) })
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: name, Err: err}
		}
		if filled += count; filled < len(buffer) {
			return buffer[:filled], nil
		}
		buffer = append(buffer, make([]byte, len(buffer))...)
	}
}

// retried repeats a system call while signals interrupt it; the Go runtime sends some to its own threads.
func retried(call func() (int, error)) (int, error) {
	for {
		if result, err := call(); !errors.Is(err, unix.EINTR) {
			return result, err
		}
	}
}
