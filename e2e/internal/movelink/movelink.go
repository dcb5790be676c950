// Package movelink moves links between network namespaces as CNI plugins do: through a temporary one, in which names
// are free.
//
// The rule of this package: it works on the namespace of the calling thread, which must be locked.
package movelink

import (
	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
)

// Move moves a link of this thread's namespace to another under a new name. Change, which may be nil, is done on the
// way. The kernel moves a link under the name that it has, and refuses that if the target has one of that name. In
// between no name is taken.
//
// It is not undone: if it fails half-way the link is lost with the temporary namespace, where the kernel destroys a
// virtual link and gives a physical one back to the first namespace (default_device_exit_net).
func Move(link netlink.Link, name string, target ns.NetNS, change func(netlink.Link) error) error {
	between, err := ns.TempNetNS()
	if err != nil {
		return err
	}
	defer func() { _ = between.Close() }() // goes then
	if err := netlink.LinkSetNsFd(link, int(between.Fd())); err != nil {
		return err
	}
	return between.Do(func(ns.NetNS) error {
		moved, err := netlinksafe.LinkByName(link.Attrs().Name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetName(moved, name); err != nil {
			return err
		}
		if change != nil {
			if err := change(moved); err != nil {
				return err
			}
		}
		return netlink.LinkSetNsFd(moved, int(target.Fd()))
	})
}
