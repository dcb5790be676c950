// Package movelink moves links between network namespaces the way CNI plugins do: through a temporary namespace without
// conflicting names.
//
// Invariant: it works on the namespace of the calling thread, which must be locked.
package movelink

import (
	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
)

// Move moves a link from this thread's namespace to another namespace and renames it. On the way, in a temporary
// namespace, Move calls change unless change is nil. The detour is necessary because the kernel moves a link under its
// current name, and fails if the target namespace already contains a link with that name. The temporary namespace
// contains no other links.
//
// Move does not roll back: if it fails halfway, the link is still in the temporary namespace when that namespace is
// destroyed. The kernel then destroys a virtual link, and moves a physical link to the initial network namespace
// (default_device_exit_net).
func Move(link netlink.Link, name string, target ns.NetNS, change func(netlink.Link) error) error {
	between, err := ns.TempNetNS()
	if err != nil {
		return err
	}
	defer func() { _ = between.Close() }() // closing the handle destroys the namespace
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
