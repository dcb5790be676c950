package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
)

// function returns the name and MAC of the link of a virtual function on the host.
func (p *plugin) function(address string) (name, mac string, err error) {
	dir := filepath.Join(p.pci, address)
	if _, err := os.Stat(filepath.Join(dir, "physfn")); err != nil {
		return "", "", fmt.Errorf("%s is no virtual function: %w", address, err)
	}
	names, err := os.ReadDir(filepath.Join(dir, "net"))
	if err == nil && len(names) == 0 {
		err = os.ErrNotExist
	}
	if err != nil {
		return "", "", fmt.Errorf("failed in cmdAdd while getting Netdevice name of %s: %w", address, err)
	}
	link, err := netlink.LinkByName(names[0].Name())
	if err != nil {
		return "", "", err
	}
	return names[0].Name(), link.Attrs().HardwareAddr.String(), nil
}

// moveToPod moves a link of the host into the pod, through a namespace in which no name is taken.
func moveToPod(name, podName string, pod ns.NetNS) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetDown(link); err != nil {
		return err
	}
	if err := pass(link, podName, pod); err != nil {
		return fmt.Errorf("cannot move %s into the pod: %w", name, err)
	}
	return nil
}

// takeBack moves a link of the pod to the host, under the name that it had there. That it is not in the pod is fine.
func takeBack(r *record, podName string, pod ns.NetNS) error {
	host, err := ns.GetCurrentNS()
	if err != nil {
		return err
	}
	defer func() { _ = host.Close() }() // was only read
	err = pod.Do(func(ns.NetNS) error {
		link, err := netlink.LinkByName(podName)
		if err != nil {
			return unlessGone(err)
		}
		if err := netlink.LinkSetDown(link); err != nil {
			return err
		}
		return pass(link, r.Link, host)
	})
	if err != nil {
		return fmt.Errorf("cannot take %s out of the pod: %w", podName, err)
	}
	return nil
}

// restore gives a function that is on the host the name and MAC that it had.
func (p *plugin) restore(r *record) error {
	name, _, err := p.function(r.DeviceID)
	if err != nil {
		return err
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if name != r.Link {
		err = errors.Join(netlink.LinkSetDown(link), netlink.LinkSetName(link, r.Link))
	}
	return errors.Join(err, setMAC(link, r.MAC))
}

func setMAC(link netlink.Link, text string) error {
	mac, err := net.ParseMAC(text)
	if err != nil {
		return err
	}
	return netlink.LinkSetHardwareAddr(link, mac)
}

// pass moves a link of this thread's namespace to another under a new name.
func pass(link netlink.Link, name string, target ns.NetNS) error {
	between, err := ns.TempNetNS()
	if err != nil {
		return err
	}
	defer func() { _ = between.Close() }() // goes then
	if err := netlink.LinkSetNsFd(link, int(between.Fd())); err != nil {
		return err
	}
	return between.Do(func(ns.NetNS) error {
		moved, err := netlink.LinkByName(link.Attrs().Name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetName(moved, name); err != nil {
			return err
		}
		return netlink.LinkSetNsFd(moved, int(target.Fd()))
	})
}
