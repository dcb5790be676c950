package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
)

// integration is the name of the bridge that stands for that of Open vSwitch.
const integration = "br-int"

// add is ADD. A failure leaves nothing.
func (p *plugin) add(args *skel.CmdArgs) error {
	c, err := parse(args.StdinData)
	if err != nil {
		return err
	}
	if err := checkArgs(args.Args, args.ContainerID); err != nil {
		return err
	}
	pod, err := ns.GetNS(args.Netns)
	if err != nil {
		return fmt.Errorf("cannot open the namespace %q: %w", args.Netns, err)
	}
	defer func() { _ = pod.Close() }() // was only read
	r := record{Network: c.Name, DeviceID: c.DeviceID}
	if c.DeviceID != "" {
		if r.Link, r.MAC, err = p.function(c.DeviceID); err != nil {
			return err
		}
	}
	if err := p.save(args, r); err != nil {
		return err
	}
	result, err := p.attach(args, c, r, pod)
	if err != nil {
		return errors.Join(fmt.Errorf("[%s network %s NAD %s] %w", args.ContainerID, c.Name, c.NADName, err),
			p.del(args))
	}
	return types.PrintResult(result, c.CNIVersion)
}

func (p *plugin) attach(args *skel.CmdArgs, c *config, r record, pod ns.NetNS) (*types100.Result, error) {
	leased, err := p.lease(args, c)
	if err != nil {
		return nil, err
	}
	mtu := c.MTU
	if mtu == 0 {
		mtu = defaultMTU
	}
	result := &types100.Result{}
	if c.DeviceID != "" {
		err = moveToPod(r.Link, args.IfName, pod)
	} else {
		var host *types100.Interface
		if host, err = plug(c, hostName(args), args.IfName, mtu, pod); err == nil {
			result.Interfaces = append(result.Interfaces, host)
		}
	}
	if err != nil {
		return nil, err
	}
	inPod := &types100.Interface{Name: args.IfName, Sandbox: args.Netns}
	for _, prefix := range leased {
		result.IPs = append(result.IPs, &types100.IPConfig{Interface: types100.Int(len(result.Interfaces)),
			Address: *network(prefix)})
	}
	result.Interfaces = append(result.Interfaces, inPod)
	return result, pod.Do(func(ns.NetNS) error { return configure(inPod, mtu, leased) })
}

// hostName is the name of the host's end: the same for the same attachment, so that DEL finds it.
func hostName(args *skel.CmdArgs) string {
	return fmt.Sprintf("ovn%x", sha256.Sum256([]byte(args.ContainerID+"/"+args.IfName)))[:15]
}

// plug makes a veth from br-int to the pod.
func plug(c *config, hostName, podName string, mtu int, pod ns.NetNS) (*types100.Interface, error) {
	bridge, err := netlink.LinkByName(integration)
	if err != nil {
		return nil, fmt.Errorf("cannot find %s: %w", integration, err)
	}
	if c.Topology == localnet && !isMapped(bridge.Attrs().Alias, c.physicalNetwork()) {
		return nil, fmt.Errorf("failed bridge mapping validation: there is no OVN bridge mapping for network %q",
			c.physicalNetwork())
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.MasterIndex = hostName, mtu, bridge.Attrs().Index
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: podName, PeerNamespace: netlink.NsFd(int(pod.Fd()))}
	if err := netlink.LinkAdd(veth); err != nil {
		return nil, fmt.Errorf("cannot make the veth %s: %w", hostName, err)
	}
	made, err := netlink.LinkByName(hostName)
	if err != nil {
		return nil, err
	}
	return &types100.Interface{Name: hostName, Mac: made.Attrs().HardwareAddr.String()}, netlink.LinkSetUp(made)
}

// configure gives the pod's interface its MTU, MAC and addresses, and sets it up.
func configure(inPod *types100.Interface, mtu int, leased []netip.Prefix) error {
	link, err := netlink.LinkByName(inPod.Name)
	if err != nil {
		return err
	}
	mac := link.Attrs().HardwareAddr
	if len(leased) > 0 && leased[0].Addr().Is4() {
		mac = append(net.HardwareAddr{0x0a, 0x58}, leased[0].Addr().AsSlice()...)
		if err := netlink.LinkSetHardwareAddr(link, mac); err != nil {
			return err
		}
	}
	inPod.Mac = mac.String()
	if err := errors.Join(netlink.LinkSetMTU(link, mtu), netlink.LinkSetUp(link)); err != nil {
		return err
	}
	for _, prefix := range leased {
		if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: network(prefix)}); err != nil {
			return fmt.Errorf("cannot add %s to %s: %w", prefix, inPod.Name, err)
		}
	}
	return nil
}

func network(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}
