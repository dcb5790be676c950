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

// add moves the device into the pod, and returns the result in the configuration's CNI version. It has three phases: it
// moves the link while holding the lock; it calls the IPAM plugin without the lock, because that plugin may wait for a
// server; and it sets addresses and routes. If a step fails after the move, add immediately moves the link back:
// according to the CNI specification, the runtime calls DEL after a failed ADD, but it never does if it crashes in
// between.
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
	// The result is built in the newest version that the library supports and is converted at the end
	// ([types100.Result.GetAsVersion]), so no other code depends on the configuration's CNI version.
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
			// addAddresses has already released the addresses. Without a record, no link has to be moved back.
			if r != nil {
				err = errors.Join(err, releaseLocked(ctx, host, r, args.Netns))
			}
			return nil, err
		}
	}
	return result.GetAsVersion(conf.CNIVersion)
}

// addLink moves the device into the pod, and returns the record that is needed to move it back, or nil for a PCI
// function without a link. If an earlier ADD for the same interface was killed and not followed by DEL, addLink undoes
// it first.
//
// The lock is held while the device is looked up, recorded and moved: if two containers request the same device, the
// second must not find the link while the first is still writing its record. addLink sets the hardware address in
// given; if that address is empty, CHECK and DEL do not expect a link.
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
	// The specification forbids a second ADD without a DEL in between, but this can happen if the caller was killed
	// before it recorded the first ADD. Only the first record contains the link's name on the host, so release the link
	// before replacing that record.
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
	// If the pod uses the host network, the move would only rename a link on the host, and DEL could not distinguish
	// that link from one that was never moved.
	if pod.id() == host.id() {
		return nil, types.NewError(types.ErrInvalidNetNS, "CNI_NETNS is the network namespace of the host", "")
	}
	r, err := newRecord(pod, conf, args, link)
	if err != nil {
		return nil, err
	}
	// After a failure, the link may be in either namespace; release finds it. The error from moveIn comes first,
	// because it is the cause.
	if err := moveIn(host, pod, r); err != nil {
		return nil, errors.Join(err, r.release(host, args.Netns))
	}
	return r, nil
}

// newRecord writes the record for a link before the link is moved.
//
// It chooses the link's index in the pod instead of leaving the choice to the kernel, so that the record contains the
// index before the link is moved: after a crash, the record still identifies the link, even if the application has
// renamed it. The indexes in other records are reserved even if their links are not in the pod, because another ADD may
// be about to move those links there.
func newRecord(pod *namespace, conf *config, args *skel.CmdArgs, device netlink.Link) (*record, error) {
	link, before := device.Attrs(), seen(device)
	r := &record{
		Network: conf.Name, ContainerID: args.ContainerID, IfName: args.IfName, Netns: args.Netns,
		NamespaceID: pod.id(),
		Name:        link.Name, HostIndex: link.Index, Up: link.Flags&net.FlagUp != 0,
		Seen: &before, AltNames: link.AltNames,
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

// moveIn moves the link into the pod and brings it up.
func moveIn(host, pod *namespace, r *record) error {
	source := linkLocation{space: host, name: r.Name, index: r.HostIndex}
	if err := move(source, linkLocation{space: pod, name: r.IfName, index: r.Index, inPod: true}); err != nil {
		return err
	}
	link, err := pod.links.LinkByName(r.IfName)
	if err != nil {
		return fmt.Errorf("cannot find link %q in the pod: %w", r.IfName, err)
	}
	if now := seen(link); r.Index != link.Attrs().Index || *r.Seen != now { // on an old kernel, or for a virtual device
		r.Index, r.Seen = link.Attrs().Index, &now
		if err := r.write(); err != nil {
			return err
		}
	}
	if err := pod.links.LinkSetUp(link); err != nil {
		return fmt.Errorf("cannot set link %q up in the pod: %w", r.IfName, err)
	}
	return nil
}

// addAddresses calls the IPAM plugin and, if there is an interface, assigns the addresses to it. A result without
// addresses is an error, because an IPAM plugin that is configured is expected to return some. After any error, the
// addresses are released with the configuration used to allocate them, since DEL may never be called.
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
			return fmt.Errorf("IPAM plugin %s returned no address", conf.IPAM.Type)
		}
		// Index 0 refers to the pod's interface, the only one in the result. IPAM plugins do not set the index, because
		// they do not deal with interfaces.
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
