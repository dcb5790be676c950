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

// add gives the pod the device, and returns the result in the version of the configuration. It has three phases: under
// the lock the link moves; then, without it, the IPAM plugin is asked, which may wait for a server; then addresses and
// routes are set. A failure after the move takes the link back at once: the CNI specification has the runtime call DEL
// after a failed ADD, but a runtime that crashes in between never does.
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
	// The result is built in the newest version that the library has. [types100.Result.GetAsVersion] converts it at the
	// end, so nothing above it depends on the version of the configuration.
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
			// addAddresses has given its lease back already. Without a record there is no link either.
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
//
// The lock covers the search for the device, the record and the move as one: of two containers that ask for one device
// the second must not find the link while the first still writes down where it takes it. given gets the hardware
// address of the link; without one it tells CHECK and DEL that there is no link to look for.
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
	// The specification forbids a second ADD without a DEL in between. It happens nevertheless, after a caller that was
	// killed before it noted that it called ADD. The record of the first is the only one that knows the link's name on
	// the host, so it is used before it is replaced.
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
	// A pod with the host's network: the move would only rename a link of the host, which DEL could not tell from a
	// link that never left.
	if pod.id() == host.id() {
		return nil, types.NewError(types.ErrInvalidNetNS, "CNI_NETNS is the network namespace of the host", "")
	}
	r, err := newRecord(pod, conf, args, link)
	if err != nil {
		return nil, err
	}
	// The link may be in either namespace now: release looks for it and does what there is to do. Its error comes
	// second, as the first is the cause.
	if err := moveIn(host, pod, r); err != nil {
		return nil, errors.Join(err, r.release(host, args.Netns))
	}
	return r, nil
}

// newRecord writes down where a link will be.
//
// The index in the pod is chosen here and not by the kernel, so that it is in the record before the link moves: a crash
// in between leaves a record that still finds the link, whatever the application calls it by then. Indexes of other
// records count as taken also while their links are not in the pod: their ADD may be about to move them there.
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
	if now := seen(link); r.Index != link.Attrs().Index || *r.Seen != now { // an old kernel, or no hardware
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

// addAddresses has the IPAM plugin give addresses and sets them on the interface, if there is one. A result without
// addresses is an error: the IPAM plugin was configured, so the author expects some. After any error the addresses are
// given back, with the same configuration by which they were taken, since DEL may never come.
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
		// Index 0 is the pod's interface, the only one of the result. IPAM plugins leave it out: they know no
		// interfaces.
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
