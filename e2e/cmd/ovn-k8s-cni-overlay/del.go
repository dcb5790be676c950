package main

import (
	"errors"
	"os"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
)

// del is DEL. It goes by the record of ADD, and may come again at any time.
func (p *plugin) del(args *skel.CmdArgs) error {
	r, err := p.load(args)
	if err != nil || r == nil {
		return err
	}
	if r.DeviceID != "" {
		err = p.comeHome(args, r)
	} else {
		err = unplug(hostName(args))
	}
	if err := errors.Join(err, p.release(args, r.Network)); err != nil {
		return err
	}
	return os.Remove(p.recordPath(args))
}

// unplug removes the host's end of a veth, and with it the pod's.
func unplug(name string) error {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkDel(link)
	}
	return unlessGone(err)
}

// comeHome takes a function out of the pod. If the pod's namespace is gone, the kernel has done so.
func (p *plugin) comeHome(args *skel.CmdArgs, r *record) error {
	pod, err := ns.GetNS(args.Netns)
	if err == nil {
		defer func() { _ = pod.Close() }() // was only read
		if err := takeBack(r, args.IfName, pod); err != nil {
			return err
		}
	}
	return p.restore(r)
}

// unlessGone is err, or nil where it says that a link does not exist.
func unlessGone(err error) error {
	var gone netlink.LinkNotFoundError
	if errors.As(err, &gone) {
		return nil
	}
	return err
}
