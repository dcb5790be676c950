package main

import (
	"errors"
	"fmt"
	"net"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ipam"
	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"github.com/dra-networking/dra-network-driver/e2e/internal/movelink"
)

// add implements ADD. If a setting is rejected, earlier settings are kept; if a later action fails, the move is undone.
// The lock is held until add returns, so a DEL for the same function waits.
func (p *plugin) add(args *skel.CmdArgs) error {
	c, err := parse(args.StdinData)
	if err != nil {
		return err
	}
	pod, err := ns.GetNS(args.Netns)
	if err != nil {
		return fmt.Errorf("cannot open the namespace %q: %w", args.Netns, err)
	}
	defer func() { _ = pod.Close() }() // used only for reading
	unlock, err := p.lock(c.DeviceID)
	if err != nil {
		return err
	}
	defer unlock()
	f, err := p.find(c.DeviceID)
	if err != nil {
		return err
	}
	r := &record{Stdin: args.StdinData, Link: f.link}
	if r.Settings, err = f.settings(); err != nil {
		return err
	}
	if err := p.claim(c.DeviceID, args.Netns); err != nil {
		return err
	}
	if err := f.apply(c); err != nil {
		return err
	}
	result := &types100.Result{Interfaces: []*types100.Interface{{Name: args.IfName, Sandbox: args.Netns}}}
	if err := p.attach(args, c, r, pod, result); err != nil {
		return errors.Join(err, p.undo(args, c, r, f, pod))
	}
	return types.PrintResult(result, c.CNIVersion)
}

// attach performs all actions after the settings have been applied, and writes the record last. If the plugin is killed
// before then, the function has been changed but DEL does not find a record, so the driver must restore the function
// without the plugin.
func (p *plugin) attach(args *skel.CmdArgs, c *config, r *record, pod ns.NetNS, result *types100.Result) error {
	if r.Link != "" {
		if err := enter(r, c.MAC, pod, result.Interfaces[0]); err != nil {
			return err
		}
	}
	if c.IPAM.Type != "" {
		if err := configure(args, c, pod, result); err != nil {
			return err
		}
	}
	return p.save(args, r)
}

// enter moves the link into the pod through a temporary namespace, in which no names conflict, and sets the MAC address
// if one is given.
func enter(r *record, address string, pod ns.NetNS, made *types100.Interface) error {
	link, err := netlinksafe.LinkByName(r.Link)
	if err != nil {
		return err
	}
	r.MAC = link.Attrs().HardwareAddr.String()
	if err := netlink.LinkSetDown(link); err != nil {
		return err
	}
	if err := movelink.Move(link, made.Name, pod, nil); err != nil {
		return fmt.Errorf("cannot move %s into the pod: %w", r.Link, err)
	}
	return pod.Do(func(ns.NetNS) error {
		link, err := netlinksafe.LinkByName(made.Name)
		if err != nil {
			return err
		}
		if address != "" {
			if err := setAddress(link, address); err != nil {
				return err
			}
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
		if link, err = netlinksafe.LinkByName(made.Name); err != nil {
			return err
		}
		made.Mac = link.Attrs().HardwareAddr.String()
		return nil
	})
}

func setAddress(link netlink.Link, text string) error {
	mac, err := net.ParseMAC(text)
	if err != nil {
		return err
	}
	return netlink.LinkSetHardwareAddr(link, mac)
}

// configure assigns the addresses from the IPAM plugin to the link. For a function without a link, the addresses are
// only part of the result, for the application that drives the function.
func configure(args *skel.CmdArgs, c *config, pod ns.NetNS, result *types100.Result) error {
	given, err := ipam.ExecAdd(c.IPAM.Type, args.StdinData)
	if err != nil {
		return fmt.Errorf("cannot get addresses from %s: %w", c.IPAM.Type, err)
	}
	addresses, err := types100.NewResultFromResult(given)
	if err != nil {
		return err
	}
	result.IPs, result.Routes, result.DNS = addresses.IPs, addresses.Routes, addresses.DNS
	for _, ip := range result.IPs {
		ip.Interface = types100.Int(0)
	}
	if result.Interfaces[0].Mac == "" {
		return nil // there is no link: the application drives the function directly
	}
	return pod.Do(func(ns.NetNS) error { return ipam.ConfigureIface(args.IfName, result) })
}

// undo reverts an ADD that failed after the settings had been applied.
func (p *plugin) undo(args *skel.CmdArgs, c *config, r *record, f *function, pod ns.NetNS) error {
	var problems []error
	if c.IPAM.Type != "" {
		problems = append(problems, ipam.ExecDel(c.IPAM.Type, args.StdinData))
	}
	if r.Link != "" {
		problems = append(problems, leave(r, args.IfName, pod))
	}
	return errors.Join(append(problems, f.reset(c, r.Settings), p.release(c.DeviceID))...)
}
