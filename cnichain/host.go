package cnichain

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Host is what the executor needs of a machine. Implementations are safe for concurrent use, and never change the
// namespace of a thread that others may run on.
type Host interface {
	Namespaces
	Links
	Devices
	Functions
}

// Namespaces keeps network namespaces reachable.
type Namespaces interface {
	// Pin keeps a network namespace reachable at pin, whatever its maker does. Pinning again is no error.
	Pin(netns, pin string) error
	// Unpin undoes Pin; it is no error when there is nothing.
	Unpin(pin string) error
	// Exists is true if there is a network namespace at pin.
	Exists(pin string) bool
	// NamespaceID tells the network namespace at a path from all others that exist.
	NamespaceID(path string) (string, error)
	// PlaceholderNetns makes a network namespace at a path, with one link that has a name and addresses: for plugins
	// whose DEL finds out from the interface what to remove elsewhere, when the interface is gone. Unpin removes it.
	PlaceholderNetns(path, name string, addresses []net.IPNet) error
}

// Links works on the links of a pod's network namespace, which a path names.
type Links interface {
	// Links returns the links in the namespace.
	Links(netns string) ([]Link, error)
	// Rename gives a link another name.
	Rename(netns string, index int, name string) error
	// Remove deletes a virtual link. One that is not there is no error.
	Remove(netns string, index int) error
	// ResetInPod makes a device as it was seen in the namespace after ADD: without a master, with its alias, with only
	// the alternative names of its baseline, and with its address. What an application has done to a device must not
	// keep it from returning to the host.
	ResetInPod(netns string, seen Link, device Device) error
	// MoveToHost moves the link that is the device to the host's namespace, under whatever name; Restore does the rest.
	MoveToHost(netns string, index int, device Device) error
}

// Devices returns devices to the host.
type Devices interface {
	// Boot returns the ID of the kernel's boot.
	Boot() (string, error)
	// Snapshot returns the device with its baseline as it is now: names, index, MAC, MTU, state, driver, and what a
	// physical function keeps of a virtual one. A device that is not on the host is an error that is os.ErrNotExist.
	Snapshot(Device) (Device, error)
	// OnHost is true if a device is in the host's namespace. It changes nothing. A virtual device whose baseline is of
	// another boot was not moved in this one, and is there if it exists at all.
	OnHost(Device) (bool, error)
	// Restore proves that a device is in the host's namespace and as its baseline says, and changes what is not. A
	// device that is not there is an error that is os.ErrNotExist. With a baseline of another boot it changes no
	// link: it only returns a PCI function to its driver.
	Restore(Device) error
}

// Functions works on PCI functions.
type Functions interface {
	// BindDriver binds a device to the driver BindTo, unless it is, and returns the device nodes that an application
	// needs to use it. Restore undoes it.
	BindDriver(Device) (nodes []string, err error)
	// FreeAddress lets a virtual function that is on the host take other addresses than its own, where that was ended
	// by whoever had it before. Restore does it, too.
	FreeAddress(Device) error
	// Gone is true if the machine does not have the hardware any more: it was removed, or its physical function has made
	// its virtual ones anew. It is false for virtual links.
	Gone(Device) bool
}

// LinuxHost is the real kernel, seen from the host's network namespace. The zero value is ready.
type LinuxHost struct {
	// BootID stands for the kernel's boot ID; empty: the kernel is asked. Tests set it to simulate a reboot.
	BootID string
}

var _ Host = LinuxHost{}

// Boot asks the kernel.
func (h LinuxHost) Boot() (string, error) {
	if h.BootID != "" {
		return h.BootID, nil
	}
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("cannot read the boot ID: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

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

// NamespaceID is the inode in the kernel's file system of namespaces.
func (LinuxHost) NamespaceID(path string) (string, error) {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return "", fmt.Errorf("cannot look at network namespace %s: %w", path, err)
	}
	return fmt.Sprintf("%d:%d", stat.Dev, stat.Ino), nil
}

// Links lists the links of a namespace.
func (LinuxHost) Links(path string) ([]Link, error) {
	var links []Link
	err := inNamespace(path, func(handle *netlink.Handle) error {
		found, err := listLinks(handle)
		for _, link := range found {
			attrs := link.Attrs()
			seen := Link{
				Name: attrs.Name, AltNames: attrs.AltNames, Alias: attrs.Alias, Index: attrs.Index, MAC: attrs.HardwareAddr.String(), MTU: attrs.MTU,
				Kind: link.Type(), Parent: attrs.ParentIndex, ParentElsewhere: attrs.NetNsID >= 0,
			}
			if vlan, ok := link.(*netlink.Vlan); ok {
				seen.VLANID, seen.VLANProtocol = vlan.VlanId, vlan.VlanProtocol.String()
			}
			links = append(links, seen)
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
		return rename(handle, link, name)
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
