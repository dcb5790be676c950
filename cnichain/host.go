package cnichain

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Host is the kernel as the executor sees it. Implementations are safe for concurrent use, and never change the
// namespace of a thread that others may run on.
type Host interface {
	// Pin keeps a network namespace reachable at pin, whatever its maker does. Pinning again is no error.
	Pin(netns, pin string) error
	// Unpin undoes Pin; it is no error when there is nothing.
	Unpin(pin string) error
	// Exists says whether there is a network namespace at pin.
	Exists(pin string) bool
	// Links returns the links in the namespace at the path.
	Links(netns string) ([]Link, error)
	// Rename gives a link of the namespace at the path another name.
	Rename(netns string, index int, name string) error
	// Restore proves that a device is in the host's namespace and gives it back the name, MAC, MTU and state that it
	// had. A device that is not there is an error that is os.ErrNotExist.
	Restore(Device) error
}

// LinuxHost is the real kernel, seen from the host's network namespace. The zero value is ready.
type LinuxHost struct{}

var _ Host = LinuxHost{}

// Pin bind-mounts the namespace.
func (h LinuxHost) Pin(path, pin string) error {
	if h.Exists(pin) {
		return nil
	}
	if err := ns.IsNSorErr(path); err != nil {
		return fmt.Errorf("cannot pin network namespace %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(pin), 0o755); err != nil {
		return fmt.Errorf("cannot pin network namespace %s: %w", path, err)
	}
	file, err := os.OpenFile(pin, os.O_CREATE|os.O_RDONLY, 0o444)
	if err != nil {
		return fmt.Errorf("cannot pin network namespace %s: %w", path, err)
	}
	_ = file.Close()
	if err := unix.Mount(path, pin, "none", unix.MS_BIND, ""); err != nil {
		return errors.Join(fmt.Errorf("cannot pin network namespace %s at %s (the driver needs CAP_SYS_ADMIN and a shared mount there): %w", path, pin, err), os.Remove(pin))
	}
	return nil
}

// Unpin unmounts and removes the pin.
func (LinuxHost) Unpin(pin string) error {
	err := unix.Unmount(pin, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("cannot unpin network namespace %s: %w", pin, err)
	}
	if err := os.Remove(pin); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot unpin network namespace %s: %w", pin, err)
	}
	return nil
}

// Exists checks for a namespace file system at the path.
func (LinuxHost) Exists(pin string) bool { return ns.IsNSorErr(pin) == nil }

// Links lists the links of a namespace.
func (LinuxHost) Links(path string) ([]Link, error) {
	var links []Link
	err := inNamespace(path, func(handle *netlink.Handle) error {
		found, err := listLinks(handle)
		for _, link := range found {
			attrs := link.Attrs()
			links = append(links, Link{Name: attrs.Name, AltNames: attrs.AltNames, Index: attrs.Index, MAC: attrs.HardwareAddr.String(), MTU: attrs.MTU})
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot list the links of %s: %w", path, err)
	}
	return links, nil
}

// Rename sets the link down first, as older kernels want it.
func (LinuxHost) Rename(path string, index int, name string) error {
	err := inNamespace(path, func(handle *netlink.Handle) error {
		link, err := handle.LinkByIndex(index)
		if err != nil {
			return err
		}
		if err := handle.LinkSetDown(link); err != nil {
			return err
		}
		return handle.LinkSetName(link, name)
	})
	if err != nil {
		return fmt.Errorf("cannot name link %d of %s %s: %w", index, path, name, err)
	}
	return nil
}

// inNamespace gives a handle on a namespace; no thread changes its own for longer than it takes to open a socket.
func inNamespace(path string, do func(*netlink.Handle) error) error {
	namespace, err := netns.GetFromPath(path)
	if err != nil {
		return err
	}
	defer func() { _ = namespace.Close() }()
	handle, err := netlink.NewHandleAt(namespace, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer handle.Close()
	return do(handle)
}

// listLinks repeats a dump that was interrupted by a change: a partial dump would show links as gone.
func listLinks(handle *netlink.Handle) ([]netlink.Link, error) {
	for attempt := 0; ; attempt++ {
		links, err := handle.LinkList()
		if !errors.Is(err, netlink.ErrDumpInterrupted) || attempt == 9 {
			return links, err
		}
		time.Sleep(time.Millisecond << attempt)
	}
}

// Restore finds a device by its PCI address, or by name where it has none.
func (LinuxHost) Restore(device Device) error {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("cannot check device %s: %w", device.Name, err)
	}
	defer handle.Close()
	link, err := findDevice(handle, device)
	if err != nil {
		return err
	}
	if err := restore(handle, link, device); err != nil {
		return fmt.Errorf("cannot give device %s its settings back: %w", device.Name, err)
	}
	return nil
}

func findDevice(handle *netlink.Handle, device Device) (netlink.Link, error) {
	name := device.IfName
	if device.PCIAddress != "" {
		entries, err := os.ReadDir(filepath.Join("/sys/bus/pci/devices", device.PCIAddress, "net"))
		if err != nil || len(entries) == 0 {
			return nil, fmt.Errorf("device %s (PCI %s) has no link on the host: %w", device.Name, device.PCIAddress, os.ErrNotExist)
		}
		name = entries[0].Name()
	}
	link, err := handle.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil, fmt.Errorf("device %s: the host has no link %s: %w", device.Name, name, os.ErrNotExist)
	}
	return link, err
}

// restore changes only what is not as it was.
func restore(handle *netlink.Handle, link netlink.Link, device Device) error {
	attrs := link.Attrs()
	if attrs.Name != device.IfName {
		if err := handle.LinkSetDown(link); err != nil {
			return err
		}
		if err := handle.LinkSetName(link, device.IfName); err != nil {
			return err
		}
	}
	if mac, err := net.ParseMAC(device.MAC); err == nil && attrs.HardwareAddr.String() != mac.String() {
		if err := handle.LinkSetHardwareAddr(link, mac); err != nil {
			return err
		}
	}
	if device.MTU > 0 && attrs.MTU != device.MTU {
		if err := handle.LinkSetMTU(link, device.MTU); err != nil {
			return err
		}
	}
	up := attrs.Flags&net.FlagUp != 0 && attrs.Name == device.IfName
	if device.Up && !up {
		return handle.LinkSetUp(link)
	}
	return nil
}
