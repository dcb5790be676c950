package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/plugins/pkg/ipam"
	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"github.com/dra-networking/dra-network-driver/e2e/internal/movelink"
)

// del implements DEL. It uses the record written by ADD instead of its own configuration, and deletes the record even
// on failure, after which the next DEL does nothing.
func (p *plugin) del(args *skel.CmdArgs) error {
	r, err := p.load(args)
	if err != nil || r == nil {
		return err
	}
	return errors.Join(p.delRecorded(args, r), os.Remove(p.recordPath(args)))
}

// delRecorded reverts the recorded changes. It resets the settings first, so a function that cannot be found or reset
// stays in the pod. It always deletes the record.
func (p *plugin) delRecorded(args *skel.CmdArgs, r *record) error {
	c, err := parse(r.Stdin)
	if err != nil {
		return err
	}
	if c.IPAM.Type != "" {
		if err := ipam.ExecDel(c.IPAM.Type, args.StdinData); err != nil {
			return fmt.Errorf("cannot give addresses back to %s: %w", c.IPAM.Type, err)
		}
	}
	if args.Netns == "" {
		return nil
	}
	unlock, err := p.lock(c.DeviceID)
	if err != nil {
		return err
	}
	defer unlock()
	pod, err := ns.GetNS(args.Netns)
	var gone ns.NSPathNotExistErr
	if err != nil && !errors.As(err, &gone) {
		return fmt.Errorf("cannot open the namespace %q: %w", args.Netns, err)
	}
	f, findErr := p.find(c.DeviceID)
	if findErr != nil {
		return findErr
	}
	if f.pf, findErr = netlink.LinkByName(r.Settings.PF); findErr != nil { // the name it had at ADD
		return fmt.Errorf("physical function %s: %w", r.Settings.PF, findErr)
	}
	if err := f.reset(c, r.Settings); err != nil {
		return err
	}
	if err != nil {
		return nil // the namespace no longer exists, but the function stays claimed
	}
	defer func() { _ = pod.Close() }() // used only for reading
	if err := leave(r, args.IfName, pod); err != nil {
		return err
	}
	return p.release(c.DeviceID)
}

// leave moves the link back to the host and restores its previous name and address.
func leave(r *record, name string, pod ns.NetNS) error {
	host, err := ns.GetCurrentNS()
	if err != nil {
		return err
	}
	defer func() { _ = host.Close() }() // used only for reading
	err = pod.Do(func(ns.NetNS) error {
		link, err := netlinksafe.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetDown(link); err != nil {
			return err
		}
		return movelink.Move(link, r.Link, host, func(moved netlink.Link) error { return setAddress(moved, r.MAC) })
	})
	if err != nil {
		return fmt.Errorf("cannot take %s out of the pod: %w", name, err)
	}
	return nil
}
