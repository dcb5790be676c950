package netdev

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/plugins/pkg/ipam"
	"github.com/vishvananda/netlink"
)

// del takes the link back, then gives the addresses back: nobody else may get them while the link still has them. What
// of it is done already, or can't be done as the namespace is gone, is no error. The specification wants DEL to succeed
// also when resources are missing, and lets the runtime repeat it: an error for what is done would keep the pod from
// ending.
func del(ctx context.Context, args *skel.CmdArgs) error {
	conf, err := readConfig(args.StdinData)
	if err != nil {
		return err
	}
	host, err := openHost()
	if err != nil {
		return err
	}
	defer host.close()
	if err := delLink(ctx, host, conf, args); err != nil {
		return err // the namespace answers for its addresses still, also without a process; the runtime repeats DEL
	}
	if conf.IPAM.Type == "" {
		return nil
	}
	return ipam.ExecDel(conf.IPAM.Type, args.StdinData)
}

// delLink reads the record without the lock: nobody else writes the record of this attachment, since runtimes do not
// call plugins in parallel for one container. removeIncomplete comes last, as its error must not keep a link from its
// host.
func delLink(ctx context.Context, host *namespace, conf *config, args *skel.CmdArgs) error {
	r, err := readRecord(recordPath(args.ContainerID, args.IfName))
	if err == nil && r == nil {
		r, err = conf.recordOfResult(host, args)
	}
	if err != nil {
		return err
	}
	if r == nil {
		return removeIncomplete(ctx)
	}
	return errors.Join(releaseLocked(ctx, host, r, args.Netns), removeIncomplete(ctx))
}

func releaseLocked(ctx context.Context, host *namespace, r *record, netns string) error {
	unlock, err := lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return r.release(host, netns)
}

// release brings a link to the host if it is in the pod's namespace, which may have another path by now, and forgets
// it.
//
// It is idempotent, and the record is removed last: a crash anywhere before leaves a record, by which the next DEL, ADD
// or GC begins again. Two paths are tried, since a runtime may call DEL with an empty CNI_NETNS, and may have mounted
// the namespace elsewhere since ADD. The namespace counts only if it is the one of the record: a path can be reused.
func (r *record) release(host *namespace, netns string) error {
	for _, path := range slices.Compact([]string{netns, r.Netns}) {
		if path == "" {
			continue
		}
		pod, err := openNamespace(path)
		if isGone(err) {
			continue // a device of hardware is on the host then, any other has ended
		}
		if err != nil {
			return err
		}
		if pod.id() == r.NamespaceID {
			err = r.moveOut(host, pod)
		}
		pod.close()
		if err != nil {
			return err
		}
	}
	if err := r.restoreUp(host); err != nil {
		return err
	}
	return r.remove()
}

// moveOut moves the link to the host if it is in the pod. The link is found by its index: applications may rename
// links, and may give the old name to another. One that has deleted or hidden the link may make another of its index,
// which stays where it is. What the application has added to the names of the link goes: it could be the name that the
// link gets on the host, or that of another link there.
//
// The index on the host may be taken by now, for example by a link that came from another namespace with its index;
// then the link gets a new one, and HostIndex follows it for restoreUp.
func (r *record) moveOut(host, pod *namespace) error {
	link, err := pod.byIndex(r.Index)
	if err != nil || link == nil {
		return err
	}
	if ours, err := r.isLink(link, host); err != nil || !ours {
		return err
	}
	atHome, err := host.owner(r.Name)
	if err != nil || atHome != nil && atHome.Attrs().Index == r.HostIndex {
		return err // it never left, and the application has given another the index
	}
	if err := r.removeAltNames(pod, link); err != nil {
		return err
	}
	if r.HostIndex, err = host.freeIndex(r.HostIndex); err != nil {
		return err
	}
	source := linkLocation{space: pod, name: r.IfName, index: r.Index, inPod: true}
	if err := move(source, linkLocation{space: host, name: r.Name, index: r.HostIndex}); err != nil {
		return err
	}
	if link, err = host.links.LinkByName(r.Name); err != nil {
		return fmt.Errorf("cannot find link %q on the host: %w", r.Name, err)
	}
	r.HostIndex = link.Attrs().Index // an old kernel has chosen it
	return nil
}

// removeAltNames removes the alternative names that a link did not have on the host, if it is known which it had.
func (r *record) removeAltNames(pod *namespace, link netlink.Link) error {
	if r.Seen == nil {
		return nil
	}
	for _, name := range link.Attrs().AltNames {
		if slices.Contains(r.AltNames, name) {
			continue
		}
		if err := pod.links.LinkDelAltName(link, name); err != nil {
			return fmt.Errorf("cannot remove the alternative name %q of link %q: %w", name, link.Attrs().Name, err)
		}
	}
	return nil
}

// restoreUp sets the link up again if it was up before ADD: the kernel closes a device that changes its namespace. The
// name and the index must both be those of the record, so that a stranger's link which took the name meanwhile is left
// alone.
func (r *record) restoreUp(host *namespace) error {
	if !r.Up {
		return nil
	}
	link, err := host.owner(r.Name)
	if err == nil && link != nil && link.Attrs().Index == r.HostIndex {
		err = host.links.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("cannot set link %q up on the host: %w", r.Name, err)
	}
	return nil
}

// recordOfResult makes up for a record that is lost: the link is the one in the pod that ADD has returned, if it is
// still so. It returns nil if there is none.
//
// Records are in a directory that is emptied at boot, but also when an administrator cleans up. Then only prevResult
// tells what ADD did. Every doubt ends in nil: a link that stays in the pod returns with the end of its namespace if it
// is hardware, while a stranger's link that is moved to the host is lost to the application. The name on the host is a
// guess where the configuration names no link.
func (c *config) recordOfResult(host *namespace, args *skel.CmdArgs) (*record, error) {
	result, err := c.previous()
	given := interfaceOf(result, args.IfName)
	if err != nil || given == nil || given.Mac == "" || args.Netns == "" {
		return nil, err
	}
	pod, err := openNamespace(args.Netns)
	if isGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer pod.close()
	link, err := pod.owner(args.IfName)
	if err != nil || link == nil || link.Attrs().Name != args.IfName ||
		link.Attrs().HardwareAddr.String() != given.Mac {
		return nil, err
	}
	if address := cmp.Or(c.RuntimeConfig.DeviceID, c.PCIAddress); address != "" && link.Attrs().ParentDev != address {
		return nil, nil
	}
	if now := seen(link); now.ParentDev == "" && now.Namespace < 0 {
		return nil, nil // an application can make such a link
	}
	name := cmp.Or(c.linkName(), args.IfName)
	if other, err := host.owner(name); err != nil || other != nil {
		return nil, err // the device is on the host
	}
	return &record{
		Network: c.Name, ContainerID: args.ContainerID, IfName: args.IfName, Netns: args.Netns, NamespaceID: pod.id(),
		Index: link.Attrs().Index, Name: name, HostIndex: link.Attrs().Index,
	}, nil
}

// collect releases what the network has that no attachment has any more. It is the verb GC of CNI 1.1. Attachments of
// other networks are never touched: the runtime lists those of one network only. A record that cannot be read does not
// keep the others from being released. What is listed as valid may be without a record, such as a function without a
// link.
func collect(args *skel.CmdArgs) error {
	conf, err := readConfig(args.StdinData)
	if err != nil {
		return err
	}
	host, err := openHost()
	if err != nil {
		return err
	}
	defer host.close()
	records, err := readRecords()
	problems := []error{err}
	valid := slices.Clone(conf.ValidAttachments)
	for _, r := range records {
		attachment := types.GCAttachment{ContainerID: r.ContainerID, IfName: r.IfName}
		if r.Network != conf.Name || slices.Contains(conf.ValidAttachments, attachment) {
			continue
		}
		if err := releaseLocked(context.Background(), host, r, r.Netns); err != nil {
			problems, valid = append(problems, err), append(valid, attachment) // it keeps its addresses, as in del
		}
	}
	if conf.IPAM.Type != "" && err == nil { // else nobody knows whose addresses are in use still
		config, err := withValid(args.StdinData, valid)
		if err == nil {
			err = invoke.DelegateGC(context.Background(), conf.IPAM.Type, config, nil)
		}
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// withValid returns a configuration for GC with other valid attachments. Package libcni writes them under a second name
// as well, which was that of an earlier draft of the specification.
func withValid(config []byte, valid []types.GCAttachment) ([]byte, error) {
	var fields map[string]json.RawMessage
	list, err := json.Marshal(append([]types.GCAttachment{}, valid...)) // never null
	if err = errors.Join(err, json.Unmarshal(config, &fields)); err != nil {
		return nil, err
	}
	fields["cni.dev/valid-attachments"] = list
	const draft = "cni.dev/attachments"
	if fields[draft] != nil {
		fields[draft] = list
	}
	return json.Marshal(fields)
}
