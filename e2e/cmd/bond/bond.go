package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ipam"
	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
)

// config is the plugin's configuration.
type config struct {
	types.NetConf
	Mode string `json:"mode"`
	// FailOverMAC is 0 for none, 1 for active or 2 for follow.
	FailOverMAC      int    `json:"failOverMac"`
	LinksInContainer bool   `json:"linksInContainer"`
	Miimon           string `json:"miimon"` // milliseconds, as a string
	MTU              int    `json:"mtu"`
	Links            []struct {
		Name string `json:"name"`
	} `json:"links"`
}

const smallestMTU = 68

// parse parses the configuration; its error lists all problems. It supports the documented part of the real plugin's
// configuration and ignores unknown fields, as CNI requires.
func parse(data []byte) (*config, error) {
	c := &config{}
	if err := json.Unmarshal(data, c); err != nil {
		return nil, fmt.Errorf("cannot decode the configuration: %w", err)
	}
	var problems []error
	if !c.LinksInContainer {
		problems = append(problems, errors.New("linksInContainer must be true: links of the host are not taken"))
	}
	if len(c.Links) < 2 {
		problems = append(problems, fmt.Errorf("links must have two or more, not %d", len(c.Links)))
	}
	if netlink.StringToBondMode(c.Mode) == netlink.BOND_MODE_UNKNOWN {
		problems = append(problems, fmt.Errorf("mode %q is not known", c.Mode))
	}
	if c.FailOverMAC < 0 || c.FailOverMAC > 2 {
		problems = append(problems, errors.New("failOverMac must be 0, 1 or 2"))
	}
	if _, err := strconv.Atoi(c.Miimon); err != nil {
		problems = append(problems, fmt.Errorf("miimon must be milliseconds as text: %w", err))
	}
	if c.MTU != 0 && c.MTU < smallestMTU {
		problems = append(problems, fmt.Errorf("mtu must be %d or more", smallestMTU))
	}
	return c, errors.Join(problems...)
}

// bond returns the link to create.
func (c *config) bond(name string) *netlink.Bond {
	bond := netlink.NewLinkBond(netlink.LinkAttrs{Name: name, MTU: c.MTU})
	bond.Mode = netlink.StringToBondMode(c.Mode)
	bond.Miimon, _ = strconv.Atoi(c.Miimon) // parse has checked the value
	bond.FailOverMac = netlink.BondFailOverMac(c.FailOverMAC)
	return bond
}

// add implements ADD. Like the real plugin with linksInContainer, it creates the bond from links that are already in
// the pod.
func add(args *skel.CmdArgs) error {
	c, err := parse(args.StdinData)
	if err != nil {
		return err
	}
	result := &types100.Result{Interfaces: []*types100.Interface{{Name: args.IfName, Sandbox: args.Netns}}}
	err = ns.WithNetNSPath(args.Netns, func(ns.NetNS) error {
		mac, err := c.build(args.IfName)
		result.Interfaces[0].Mac = mac
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot make the bond %s: %w", args.IfName, err)
	}
	if c.IPAM.Type != "" {
		if err := configure(args, c, result); err != nil {
			return err
		}
	}
	return types.PrintResult(result, c.CNIVersion)
}

// build creates the bond in this thread's namespace and returns its MAC address. It sets the links down first: a bond
// accepts only links that are down (bond_enslave), and uses the address of the first link. If build fails halfway, DEL
// removes the bond.
func (c *config) build(name string) (mac string, err error) {
	members := make([]netlink.Link, len(c.Links))
	for i := range c.Links {
		if members[i], err = netlinksafe.LinkByName(c.Links[i].Name); err != nil {
			return "", fmt.Errorf("link %s: %w", c.Links[i].Name, err)
		}
		if mtu := members[i].Attrs().MTU; c.MTU > mtu {
			return "", fmt.Errorf("mtu %d is larger than the MTU of %s, which is %d", c.MTU, c.Links[i].Name, mtu)
		}
	}
	if err := separate(members); err != nil {
		return "", err
	}
	bond := c.bond(name)
	if err := netlink.LinkAdd(bond); err != nil {
		return "", err
	}
	for _, member := range members {
		if err := netlink.LinkSetDown(member); err != nil {
			return "", err
		}
		if err := netlink.LinkSetMaster(member, bond); err != nil {
			return "", fmt.Errorf("link %s: %w", member.Attrs().Name, err)
		}
		if err := netlink.LinkSetUp(member); err != nil {
			return "", fmt.Errorf("link %s: %w", member.Attrs().Name, err)
		}
	}
	if err := netlink.LinkSetUp(bond); err != nil {
		return "", err
	}
	made, err := netlinksafe.LinkByName(name)
	if err != nil {
		return "", err
	}
	return made.Attrs().HardwareAddr.String(), nil
}

// configure assigns the addresses from the IPAM plugin to the bond. If it fails after the allocation, DEL releases the
// addresses; the runtime must call DEL after a failed ADD (CNI, section "ADD").
func configure(args *skel.CmdArgs, c *config, result *types100.Result) error {
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
	return ns.WithNetNSPath(args.Netns, func(ns.NetNS) error { return ipam.ConfigureIface(args.IfName, result) })
}

// del implements DEL. It releases the lease first, so that this happens even if the namespace does not exist.
func del(args *skel.CmdArgs) error {
	c, err := parse(args.StdinData)
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
	return ns.WithNetNSPath(args.Netns, func(ns.NetNS) error { return c.dissolve(args.IfName) })
}

// dissolve removes the members from the bond and deletes the bond, if it exists. It removes the members one by one
// before it deletes the bond, so that they are up and have their own addresses afterwards.
func (c *config) dissolve(name string) error {
	bond, err := netlinksafe.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return err
	}
	var released []netlink.Link
	for i := range c.Links {
		member, err := netlinksafe.LinkByName(c.Links[i].Name)
		if err != nil || member.Attrs().MasterIndex != bond.Attrs().Index {
			continue // it has already left the bond
		}
		if err := netlink.LinkSetNoMaster(member); err != nil {
			return fmt.Errorf("link %s: %w", c.Links[i].Name, err)
		}
		if err := netlink.LinkSetUp(member); err != nil {
			return fmt.Errorf("link %s: %w", c.Links[i].Name, err)
		}
		if member, err = netlinksafe.LinkByName(c.Links[i].Name); err != nil { // leaving a bond changes the MAC address
			return fmt.Errorf("link %s: %w", c.Links[i].Name, err)
		}
		released = append(released, member)
	}
	return errors.Join(separate(released), netlink.LinkDel(bond))
}

// separate changes the MAC address of each member that has the same address as an earlier member.
func separate(members []netlink.Link) error {
	taken := map[string]bool{}
	for _, member := range members {
		mac := slices.Clone(member.Attrs().HardwareAddr)
		if !taken[mac.String()] {
			taken[mac.String()] = true
			continue
		}
		mac[0] |= 2 // locally administered
		for taken[mac.String()] {
			mac[len(mac)-1]++
		}
		if err := netlink.LinkSetHardwareAddr(member, mac); err != nil {
			return fmt.Errorf("link %s: cannot set the address %s: %w", member.Attrs().Name, mac, err)
		}
		taken[mac.String()] = true
	}
	return nil
}
