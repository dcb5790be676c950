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

// del moves the link back and then releases the addresses, which must not be reassigned while the link still has them.
// It is not an error if a step has already been completed, or cannot be performed because the namespace no longer
// exists. According to the specification, DEL should succeed even if resources are missing, and the runtime may repeat
// it. An error would prevent the pod from terminating.
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
		return err // addresses may still be used in the namespace, even without a process; the runtime repeats DEL
	}
	if conf.IPAM.Type == "" {
		return nil
	}
	return ipam.ExecDel(conf.IPAM.Type, args.StdinData)
}

// delLink moves the link back to the host. It reads the record without holding the lock: no other process writes the
// record for this attachment, because runtimes do not call plugins concurrently for the same container.
func delLink(ctx context.Context, host *namespace, conf *config, args *skel.CmdArgs) error {
	r, err := readRecord(recordPath(args.ContainerID, args.IfName))
	if err == nil && r == nil {
		r, err = conf.recordOfResult(host, args)
	}
	if err != nil || r == nil {
		return err
	}
	return releaseLocked(ctx, host, r, args.Netns)
}

func releaseLocked(ctx context.Context, host *namespace, r *record, netns string) error {
	unlock, err := lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return r.release(host, netns)
}

// release moves a link to the host if it is still in the pod's namespace, whose path may have changed, and removes the
// record.
//
// It is idempotent, and the record is removed last: after a crash, the next DEL, ADD or GC starts over from the record.
// It tries two paths, since the runtime may call DEL with an empty CNI_NETNS, or may have mounted the namespace at a
// different path since ADD. Since paths can be reused, the namespace's ID must match the one in the record.
func (r *record) release(host *namespace, netns string) error {
	for _, path := range slices.Compact([]string{netns, r.Netns}) {
		if path == "" {
			continue
		}
		pod, err := openNamespace(path)
		if isGone(err) {
			continue // in that case, hardware is back on the host, and any other device no longer exists
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

// moveOut moves the link to the host if it is in the pod. It finds the link by index, because an application may have
// renamed the link and given the old name to another link. An application that has deleted or hidden the link may also
// have created another link with the same index; that link stays in the pod. moveOut removes alternative names that the
// application has added, because they could collide with the link's name on the host or with other links there.
//
// The link's index on the host may be taken, for example by a link that was moved from another namespace and kept its
// index. In that case, the link gets a new index, and HostIndex is updated for restoreUp.
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
		return err // the link never left the host, and the application created a link with the same index
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
	r.HostIndex = link.Attrs().Index // old kernels choose the index themselves
	return nil
}

// removeAltNames removes the alternative names that a link did not have on the host, provided that the record lists the
// original names.
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

// restoreUp brings the link up again if it was up before ADD, because the kernel closes a device when it is moved to
// another namespace. Both the name and the index must match the record, so that an unrelated link that now has the name
// is not changed.
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

// recordOfResult reconstructs a lost record from prevResult: the link is the interface that ADD returned, if it still
// matches. recordOfResult returns nil if there is no such link.
//
// The record directory is emptied at boot, and an administrator may also remove it. Without the record, prevResult is
// the only description of what ADD did. When in doubt, recordOfResult returns nil: a hardware link returns to the host
// when its namespace is destroyed, whereas moving an unrelated link to the host would deprive the application of it. If
// the configuration does not contain the link's name, the name on the host is a guess.
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
		return nil, nil // an application could have created such a link
	}
	name := cmp.Or(c.linkName(), args.IfName)
	if other, err := host.owner(name); err != nil || other != nil {
		return nil, err // the device is already on the host
	}
	return &record{
		Network: c.Name, ContainerID: args.ContainerID, IfName: args.IfName, Netns: args.Netns, NamespaceID: pod.id(),
		Index: link.Attrs().Index, Name: name, HostIndex: link.Attrs().Index,
	}, nil
}

// collect implements the GC command from CNI 1.1: it releases the links in a network that do not belong to a valid
// attachment. It ignores attachments to other networks, because the runtime only lists the attachments to one network.
// An unreadable record does not prevent other links from being released. There may be no record for a valid attachment,
// for example for a PCI function without a link.
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
			problems, valid = append(problems, err), append(valid, attachment) // keep the addresses, as in del
		}
	}
	if conf.IPAM.Type != "" && err == nil { // if a record is unreadable, it is not known which addresses are in use
		config, err := withValid(args.StdinData, valid)
		if err == nil {
			err = invoke.DelegateGC(context.Background(), conf.IPAM.Type, config, nil)
		}
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// withValid returns the GC configuration with the given valid attachments. Package libcni also writes the attachments
// under a second key, from an earlier draft of the specification.
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
