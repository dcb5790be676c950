package host

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Linux implements [Host] on a real Linux kernel. It must run in the host's network namespace. The zero value is ready
// to use.
type Linux struct {
	// BootID overrides the kernel's boot ID if it is not empty. Tests set it to simulate a reboot.
	BootID string
}

var _ Host = Linux{}

// Boot reads the boot ID from the kernel.
func (h Linux) Boot() (string, error) {
	if h.BootID != "" {
		return h.BootID, nil
	}
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("cannot read the boot ID: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

// Pin bind-mounts the namespace. The mount holds a reference to the namespace, just as a process inside it would.
// Without the mount, the kernel would destroy the namespace when the last process in it exits.
func (h Linux) Pin(path, pin string) error {
	if h.Exists(pin) {
		return nil
	}
	if err := ns.IsNSorErr(path); err != nil {
		return fmt.Errorf("cannot pin network namespace %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(pin), 0o755); err != nil {
		return fmt.Errorf("cannot pin network namespace %s: %w", path, err)
	}
	// A crash before the mount leaves an empty file. Exists does not treat that file as a pin, the next Pin mounts over
	// it, and Unpin removes it.
	file, err := os.OpenFile(pin, os.O_CREATE|os.O_RDONLY, 0o444)
	if err != nil {
		return fmt.Errorf("cannot pin network namespace %s: %w", path, err)
	}
	_ = file.Close()
	if err := unix.Mount(path, pin, "none", unix.MS_BIND, ""); err != nil {
		return errors.Join(fmt.Errorf("cannot pin network namespace %s at %s (the driver needs CAP_SYS_ADMIN and a "+
			"shared mount there): %w", path, pin, err), os.Remove(pin))
	}
	return nil
}

// Unpin unmounts and removes the pin.
//
// The mount is detached immediately, even if a plugin still has the file open. EINVAL means that nothing is mounted at
// the path, and ENOENT that the file does not exist.
func (Linux) Unpin(pin string) error {
	err := unix.Unmount(pin, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("cannot unpin network namespace %s: %w", pin, err)
	}
	if err := os.Remove(pin); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot unpin network namespace %s: %w", pin, err)
	}
	return nil
}

// Exists reports whether a namespace file system is mounted at the path.
func (Linux) Exists(pin string) bool { return ns.IsNSorErr(pin) == nil }

// HoldNamespace opens the namespace's file: the kernel keeps a namespace alive as long as a file descriptor refers to
// it (namespaces(7)).
func (Linux) HoldNamespace(path string) (held string, release func(), err error) {
	file, err := os.Open(path) //nolint:gosec // the runtime reports the path
	if err != nil {
		return "", nil, fmt.Errorf("cannot inspect network namespace %s: %w", path, err)
	}
	return fmt.Sprintf("/proc/self/fd/%d", file.Fd()), func() { _ = file.Close() }, nil
}

// NamespaceID returns the device and inode of the namespace in the kernel's namespace file system. The kernel reuses
// the inodes of destroyed namespaces, so two IDs are comparable only while one of the namespaces is kept alive.
func (Linux) NamespaceID(path string) (string, error) {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return "", fmt.Errorf("cannot inspect network namespace %s: %w", path, err)
	}
	return fmt.Sprintf("%d:%d", stat.Dev, stat.Ino), nil
}

// Links lists the links in a namespace.
func (Linux) Links(path string) ([]cnichain.Link, error) {
	handle, err := openNamespace(path)
	if err != nil {
		return nil, fmt.Errorf("cannot enter network namespace %s: %w", path, err)
	}
	defer handle.Close()
	return linksOf(handle, path)
}

// Contents enters the namespace only once: in most pods, entering it takes longer than reading the links and routes.
func (Linux) Contents(path string) (contents Contents, err error) {
	handle, err := openNamespace(path)
	if err != nil {
		return Contents{}, fmt.Errorf("cannot enter network namespace %s: %w", path, err)
	}
	defer handle.Close()
	if contents.Links, err = linksOf(handle, path); err != nil {
		return Contents{}, err
	}
	if contents.DefaultRoutes, err = defaultRoutes(handle); err != nil {
		return Contents{}, fmt.Errorf("cannot list the routes of %s: %w", path, err)
	}
	return contents, nil
}

func linksOf(handle *netlink.Handle, path string) ([]cnichain.Link, error) {
	found, err := listLinks(handle)
	if err != nil {
		return nil, fmt.Errorf("cannot list the links of %s: %w", path, err)
	}
	links := make([]cnichain.Link, 0, len(found))
	for _, link := range found {
		attrs := link.Attrs()
		seen := cnichain.Link{
			Name: attrs.Name, AltNames: attrs.AltNames, Alias: attrs.Alias, Index: attrs.Index,
			MAC: attrs.HardwareAddr.String(), MTU: attrs.MTU,
			Kind: link.Type(), Parent: attrs.ParentIndex, ParentElsewhere: attrs.NetNsID >= 0,
			ParentDev: attrs.ParentDev, PermMAC: attrs.PermHWAddr.String(),
		}
		if vlan, ok := link.(*netlink.Vlan); ok {
			seen.VLANID, seen.VLANProtocol = vlan.VlanId, vlan.VlanProtocol.String()
		}
		links = append(links, seen)
	}
	return links, nil
}

// defaultRoutes compares metrics: a default route with a higher metric is a fallback. The kernel reports metric 1024
// for IPv6 routes without an explicit metric.
func defaultRoutes(handle *netlink.Handle) (map[string][]int, error) {
	preferred := map[string][]int{}
	for name, family := range map[string]int{"IPv4": unix.AF_INET, "IPv6": unix.AF_INET6} {
		least := math.MaxInt
		// Iterate instead of reading all routes into memory, since a pod may have flooded its routing table.
		err := handle.RouteListFilteredIter(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE,
			func(r netlink.Route) bool {
				fromRouter := r.Protocol == unix.RTPROT_RA // may appear at any time
				if r.Type != unix.RTN_UNICAST || r.Priority > least || fromRouter || !isDefault(r.Dst) {
					return true
				}
				if r.Priority < least {
					least = r.Priority
					delete(preferred, name)
				}
				preferred[name] = append(preferred[name], r.LinkIndex)
				for _, hop := range r.MultiPath {
					preferred[name] = append(preferred[name], hop.LinkIndex)
				}
				return true
			})
		if err != nil {
			return nil, err
		}
		preferred[name] = slices.DeleteFunc(preferred[name], func(index int) bool { return index == 0 })
		slices.Sort(preferred[name])
		if preferred[name] = slices.Compact(preferred[name]); len(preferred[name]) == 0 {
			delete(preferred, name)
		}
	}
	return preferred, nil
}

// isDefault reports whether a route's destination covers all addresses.
func isDefault(destination *net.IPNet) bool {
	if destination == nil {
		return true
	}
	ones, _ := destination.Mask.Size()
	return ones == 0
}

// Rename sets the link down first, which older kernels require.
func (Linux) Rename(path string, index int, name string) error {
	err := inNamespace(path, func(handle *netlink.Handle) error {
		link, err := handle.LinkByIndex(index)
		if err != nil {
			return err
		}
		return rename(handle, link, name)
	})
	if err != nil {
		return fmt.Errorf("cannot name link %d of %s %s: %w", index, path, name, err)
	}
	return nil
}

// inNamespace calls a function with a netlink handle for a namespace. The thread enters that namespace only to open the
// socket.
func inNamespace(path string, do func(*netlink.Handle) error) error {
	handle, err := openNamespace(path)
	if err != nil {
		return err
	}
	defer handle.Close()
	return do(handle)
}

func openNamespace(path string) (*netlink.Handle, error) {
	namespace, err := netns.GetFromPath(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = namespace.Close() }()
	return netlink.NewHandleAt(namespace, unix.NETLINK_ROUTE)
}

// listLinks lists the links. If a concurrent change interrupts the dump, it retries, since links may be missing from
// the result. Ten attempts take half a second in total; after the last one, it returns the error along with the last
// dump.
func listLinks(handle *netlink.Handle) ([]netlink.Link, error) {
	for attempt := 0; ; attempt++ {
		links, err := handle.LinkList()
		if !errors.Is(err, netlink.ErrDumpInterrupted) || attempt == 9 {
			return links, err
		}
		time.Sleep(time.Millisecond << attempt)
	}
}
