package ovnkube

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"github.com/dra-networking/dra-network-driver/e2e/internal/movelink"
)

// functionLink returns the name of a virtual function's link on the host. It returns an error if there is no such link,
// because the function is bound to vfio-pci or its link is in a pod.
func (v *vswitch) functionLink(address string) (string, error) {
	dir := filepath.Join(v.pci, address)
	if _, err := os.Stat(filepath.Join(dir, "physfn")); err != nil {
		return "", fmt.Errorf("%s is no virtual function: %w", address, err)
	}
	names, err := os.ReadDir(filepath.Join(dir, "net"))
	if err == nil && len(names) == 0 {
		err = os.ErrNotExist
	}
	if err != nil {
		return "", fmt.Errorf("%s has no link on the host: %w", address, err)
	}
	return names[0].Name(), nil
}

// moveToPod moves a link from the host into a pod through a temporary namespace, in which no names conflict.
func moveToPod(name, podName string, pod ns.NetNS) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetDown(link); err != nil {
		return err
	}
	if err := movelink.Move(link, podName, pod, nil); err != nil {
		return fmt.Errorf("cannot move %s into the pod: %w", name, err)
	}
	return nil
}

// returnFunction moves a function's link back to the host and restores its name, but not its MAC address or MTU. The
// real server has the same weakness: the function's next user gets the previous user's settings.
func (v *vswitch) returnFunction(r *podRequest, pod ns.NetNS) error {
	ports, err := v.ports()
	if err != nil {
		return err
	}
	host, err := ns.GetCurrentNS()
	if err != nil {
		return err
	}
	defer func() { _ = host.Close() }() // used only for reading
	return pod.Do(func(ns.NetNS) error {
		link, err := netlink.LinkByName(r.ifName)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetDown(link); err != nil {
			return err
		}
		name := ports[Representor(r.conf.DeviceID)].Netdev
		if name == "" {
			name = hostName(r.sandbox, link.Attrs().Index)
		}
		return movelink.Move(link, name, host, nil)
	})
}
