package netdev

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ipam"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
)

// add gives the pod the device, and returns the result in the version of the configuration.
func add(ctx context.Context, args *skel.CmdArgs) (types.Result, error) {
	conf, err := readConfig(args.StdinData)
	if err != nil {
		return nil, err
	}
	host, err := openHost()
	if err != nil {
		return nil, err
	}
	defer host.close()
	result := &types100.Result{
		CNIVersion: types100.ImplementedSpecVersion,
		Interfaces: []*types100.Interface{{Name: args.IfName, Sandbox: args.Netns}},
		DNS:        conf.DNS,
	}
	r, err := addLink(ctx, host, conf, args, result.Interfaces[0])
	if err != nil {
		return nil, err
	}
	if conf.IPAM.Type != "" {
		if result, err = addAddresses(conf, args, result, r != nil); err != nil {
			if r != nil {
				err = errors.Join(err, releaseLocked(ctx, host, r, args.Netns))
			}
			return nil, err
		}
	}
	return result.GetAsVersion(conf.CNIVersion)
}

// addLink gives the pod the device, and says what brings it back: nothing if it is a function without a link. An ADD of
// the same interface that was killed, and whose DEL never came, is undone first.
func addLink(
	ctx context.Context, host *namespace, conf *config, args *skel.CmdArgs, given *types100.Interface,
) (*record, error) {
	unlock, err := lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	older, err := readRecord(recordPath(args.ContainerID, args.IfName))
	if err != nil {
		return nil, err
	}
	if older != nil {
		if err := older.release(host, args.Netns); err != nil {
			return nil, err
		}
	}
	link, err := findDevice(conf, host)
	if err != nil || link == nil {
		return nil, err
	}
	given.Mac = link.Attrs().HardwareAddr.String()
	pod, err := openNamespace(args.Netns)
	if err != nil {
		return nil, err
	}
	defer pod.close()
	if pod.id() == host.id() {
		return nil, types.NewError(types.ErrInvalidNetNS, "CNI_NETNS is the network namespace of the host", "")
	}
	r, err := newRecord(pod, conf, args, link.Attrs())
	if err != nil {
		return nil, err
	}
	if err := moveIn(host, pod, r); err != nil {
		return nil, errors.Join(err, r.release(host, args.Netns))
	}
	return r, nil
}

// newRecord writes down where a link will be.
func newRecord(pod *namespace, conf *config, args *skel.CmdArgs, link *netlink.LinkAttrs) (*record, error) {
	r := &record{
		Network: conf.Name, ContainerID: args.ContainerID, IfName: args.IfName, Netns: args.Netns,
		NamespaceID: pod.id(),
		Name:        link.Name, HostIndex: link.Index, Up: link.Flags&net.FlagUp != 0,
	}
	records, err := readRecords()
	if err != nil {
		return nil, err
	}
	var reserved []int
	for _, other := range records {
		if other.NamespaceID == r.NamespaceID {
			reserved = append(reserved, other.Index)
		}
	}
	if r.Index, err = pod.freeIndex(link.Index, reserved...); err != nil {
		return nil, err
	}
	return r, r.write()
}

// moveIn moves the link and sets it up.
func moveIn(host, pod *namespace, r *record) error {
	source := linkLocation{space: host, name: r.Name, index: r.HostIndex}
	if err := move(source, linkLocation{space: pod, name: r.IfName, index: r.Index, inPod: true}); err != nil {
		return err
	}
	link, err := pod.links.LinkByName(r.IfName)
	if err != nil {
		return fmt.Errorf("cannot find link %q in the pod: %w", r.IfName, err)
	}
	if r.Index != link.Attrs().Index { // an old kernel
		r.Index = link.Attrs().Index
		if err := r.write(); err != nil {
			return err
		}
	}
	if err := pod.links.LinkSetUp(link); err != nil {
		return fmt.Errorf("cannot set link %q up in the pod: %w", r.IfName, err)
	}
	return nil
}

// addAddresses has the IPAM plugin give addresses and sets them on the interface, if there is one.
func addAddresses(conf *config, args *skel.CmdArgs, result *types100.Result, hasLink bool) (*types100.Result, error) {
	answer, err := ipam.ExecAdd(conf.IPAM.Type, args.StdinData)
	if err != nil {
		return nil, err
	}
	err = func() error {
		addresses, err := types100.NewResultFromResult(answer)
		if err != nil {
			return err
		}
		if len(addresses.IPs) == 0 {
			return fmt.Errorf("IPAM plugin %s gave no address", conf.IPAM.Type)
		}
		for _, address := range addresses.IPs {
			address.Interface = types100.Int(0)
		}
		result.IPs, result.Routes = addresses.IPs, addresses.Routes
		if !hasLink {
			return nil
		}
		return ns.WithNetNSPath(args.Netns, func(ns.NetNS) error { return ipam.ConfigureIface(args.IfName, result) })
	}()
	if err != nil {
		return nil, errors.Join(err, ipam.ExecDel(conf.IPAM.Type, args.StdinData))
	}
	return result, nil
}
