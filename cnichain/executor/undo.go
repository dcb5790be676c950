package executor

import (
	"context"
	"errors"
	"net"
	"os"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/host"
)

// repairAfter is the number of failed DELs after which the driver itself removes what the step created, as far as
// possible.
const repairAfter = 3

// undo rolls back a step completely: it calls DEL, removes links that the plugin left in the pod although its DEL
// succeeded, and releases addresses. It verifies that the exclusive device is on the host. It touches only what the
// step itself created. If DEL fails, undo fails even if nothing that the step created is left in sight, since plugins
// keep state that the driver cannot inspect.
//
// The order matters. RDMA devices return first, since some kernel drivers remove an RDMA device together with its link.
// Next, the device is moved out of the pod, so that no application can interfere with the rest of the rollback. DEL
// runs before the driver's own cleanup, since only the plugin can remove its other state. Until DEL has failed
// repairAfter times, the driver changes nothing else, so that the plugin can find what it created. The driver then
// inspects the pod and releases the addresses unless the interface is still in the pod. The device is restored last,
// when nothing else can change it.
func (e *Executor) undo(ctx context.Context, attachment *Attachment, record *StepRecord) error {
	if e.owners.hasNewerOwner(record) {
		return e.releaseAddresses(ctx, attachment, record) // leases are keyed by sandbox
	}
	returned := e.returnRDMA(attachment, record)
	if returned != nil && record.Failures+1 < repairAfter {
		return returned
	}
	if err := e.isolated(attachment, record); err != nil {
		return err
	}
	failure := errors.Join(returned, e.del(ctx, attachment, record))
	if failure != nil && (record.Failures+1 < repairAfter || ctx.Err() != nil) {
		return failure
	}
	found, err := e.removeFromPod(attachment, record)
	// While the interface is in the pod, the namespace responds to packets for the interface's addresses, even if no
	// process is running in the namespace. If the interface stays, delStep releases the addresses when it gives up.
	if err == nil && (found || failure != nil) {
		err = errors.Join(err, e.releaseAddresses(ctx, attachment, record))
	}
	return errors.Join(failure, err, e.restoreDevice(attachment, record), e.unpinReturned(attachment))
}

// linkState describes where a step's interface is.
type linkState int

const (
	// netnsGone: the pod's namespace no longer exists.
	netnsGone linkState = iota
	// linkNamed: the interface has its original name, or it was never recorded and there is a link with that name,
	// which was free before ADD.
	linkNamed
	// linkRenamed: the interface has a different name, and its original name is free or is one of its alternative
	// names.
	linkRenamed
	// linkNameSwapped: the interface has a different name, and another link has its original name.
	linkNameSwapped
	// linkForeign: the interface no longer exists, and another link has its original name.
	linkForeign
	// linkAbsent: neither the interface nor a link with its name exists.
	linkAbsent
)

// locate finds a step's interface by the properties recorded after ADD. The name is not sufficient, since the
// application may have given it to another link. The returned link is nil if the interface no longer exists.
func (e *Executor) locate(attachment *Attachment, record *StepRecord) (linkState, *cnichain.Link, error) {
	path := e.namespaceOf(attachment, record)
	if !e.Host.Exists(path) {
		return netnsGone, nil, nil
	}
	links, err := e.Host.Links(path)
	if err != nil {
		return netnsGone, nil, err
	}
	if record.Foreign {
		return linkForeign, nil, nil
	}
	holder := findLink(links, record.IfName)
	seen := knownLink(attachment, record)
	if seen == nil {
		if holder == nil {
			return linkAbsent, nil, nil
		}
		return linkNamed, holder, nil
	}
	for i := range links {
		if !links[i].Same(seen) {
			continue
		}
		switch {
		case links[i].Name == record.IfName:
			return linkNamed, &links[i], nil
		case holder == nil || holder.Index == seen.Index:
			return linkRenamed, &links[i], nil
		}
		return linkNameSwapped, &links[i], nil
	}
	if holder != nil {
		return linkForeign, nil, nil
	}
	return linkAbsent, nil, nil
}

// knownLink returns the recorded interface that the step created or modified, or nil if it was not recorded.
func knownLink(attachment *Attachment, record *StepRecord) *cnichain.Link {
	if record.Step.Makes {
		return record.Link
	}
	for i := range attachment.Steps {
		maker := &attachment.Steps[i]
		if maker.Step.Makes && maker.IfName == record.IfName && maker.Claim == record.Claim {
			return maker.Link
		}
	}
	return nil
}

// findLink returns the link with the given name or alternative name. The kernel treats both kinds of names alike: it
// looks up links by either, and rejects a name that any link already uses as either (net/core/dev.c,
// netdev_name_node_lookup).
func findLink(links []cnichain.Link, name string) *cnichain.Link {
	for i := range links {
		if links[i].Name == name {
			return &links[i]
		}
		for _, alt := range links[i].AltNames {
			if alt == name {
				return &links[i]
			}
		}
	}
	return nil
}

// del calls the plugin's DEL, and ensures that the plugin can find only the step's own interface.
func (e *Executor) del(ctx context.Context, attachment *Attachment, record *StepRecord) error {
	if record.Step.WithoutInterface() {
		return e.delWithoutNetns(ctx, attachment, record) // there is no interface for the plugin to look up
	}
	state, link, err := e.locate(attachment, record)
	if err != nil {
		return err
	}
	switch state {
	case netnsGone, linkForeign:
		return e.delWithoutNetns(ctx, attachment, record)
	case linkAbsent:
		if record.Step.Quirks.DelNeedsInterface {
			return e.delWithoutNetns(ctx, attachment, record)
		}
	case linkNameSwapped:
		if _, err := e.removeFromPod(attachment, record); err != nil {
			return err
		}
		return e.delWithoutNetns(ctx, attachment, record)
	case linkRenamed:
		if err := e.Host.Rename(e.namespaceOf(attachment, record), link.Index, record.IfName); err != nil {
			return err
		}
	case linkNamed:
	}
	if err := e.resetInPod(attachment, record, link); err != nil {
		return err
	}
	_, failure := e.call(ctx, attachment, record, callPlan{command: commandDel, netns: e.namespaceOf(attachment, record)})
	if failure == nil {
		return nil
	}
	// The plugin may have failed because its interface no longer exists. That is acceptable if the schema says so, if
	// the hardware was removed from the machine, or if the device is already on the host.
	state, _, err = e.locate(attachment, record)
	if err != nil || state != linkAbsent {
		return failure
	}
	if e.delMayFail(record) {
		return e.releaseAddresses(ctx, attachment, record)
	}
	if !record.Step.OwnsDevice() {
		return failure
	}
	if onHost, err := e.Host.OnHost(*record.Step.Device); err != nil || !onHost {
		return failure
	}
	// An earlier DEL moved the device to the host, but was killed before it completed.
	return e.delWithoutNetns(ctx, attachment, record)
}

// resetInPod prepares a device for its return to the host: the plugin's DEL does not revert changes made by the
// application.
func (e *Executor) resetInPod(attachment *Attachment, record *StepRecord, link *cnichain.Link) error {
	device, away, err := e.away(record, link)
	if err != nil || !away || link == nil || !record.Step.Makes || !couldBe(link, device) {
		return err
	}
	seen := *link
	if record.Link != nil {
		seen.Alias = record.Link.Alias
	}
	return e.Host.ResetInPod(e.namespaceOf(attachment, record), seen, *device)
}

// away reports whether the step has an exclusive device that is not on the host. link is the step's interface in the
// pod, and may be nil. If link is the device, any similar link on the host is a different one.
func (e *Executor) away(record *StepRecord, link *cnichain.Link) (device *cnichain.Device, away bool, err error) {
	if !record.Step.OwnsDevice() {
		return nil, false, nil
	}
	device = record.Step.Device
	onHost, err := e.Host.OnHost(*device)
	return device, !onHost || link != nil && record.Step.Moves && isMoved(link, device), err
}

// delWithoutNetns rolls back a step whose interface disappeared with its namespace, or must not be looked up by name.
// It leaves CNI_NETNS empty, as the CNI specification allows for DEL (section 2 "DEL"), unless the plugin's schema
// requires another value.
func (e *Executor) delWithoutNetns(ctx context.Context, attachment *Attachment, record *StepRecord) error {
	plan := callPlan{command: commandDel}
	switch {
	case record.Step.Quirks.DelNeedsInterface && record.Result != nil:
		return e.delInPlaceholder(ctx, attachment, record, plan)
	case record.Step.Quirks.DelWithoutNetns == cnichain.DelNetnsSkip:
		return e.releaseAddresses(ctx, attachment, record)
	case record.Step.Quirks.DelWithoutNetns == cnichain.DelNetnsStalePath:
		plan.netns = attachment.Pin + ".gone" // a path that never exists
	}
	_, err := e.call(ctx, attachment, record, plan)
	if err != nil && !e.delMayFail(record) {
		return err
	}
	if err != nil || record.Step.Quirks.LeaksIPAM {
		return e.releaseAddresses(ctx, attachment, record)
	}
	return nil
}

// delMayFail reports whether DEL is allowed to fail if the plugin does not find its interface. If the hardware was
// removed, a failure is always acceptable.
func (e *Executor) delMayFail(record *StepRecord) bool {
	return record.Step.Quirks.DelFailsWithoutInterface || record.Step.OwnsDevice() && e.Host.Gone(*record.Step.Device)
}

// delInPlaceholder calls DEL with a placeholder interface.
func (e *Executor) delInPlaceholder(
	ctx context.Context, attachment *Attachment, record *StepRecord, plan callPlan,
) (err error) {
	result, err := parseResult(record.Result, record.Step.CNIVersion)
	if err != nil {
		return err
	}
	var addresses []net.IPNet
	for _, ip := range result.IPs {
		addresses = append(addresses, ip.Address)
	}
	plan.netns = host.PlaceholderPath(attachment.Pin)
	if err := e.Host.PlaceholderNetns(plan.netns, record.IfName, addresses); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Host.Unpin(plan.netns)) }()
	_, err = e.call(ctx, attachment, record, plan)
	return err
}

// releaseAddresses calls the step's IPAM plugin directly, as the step's plugin would (CNI specification, section 4
// "Delegated plugin execution procedure"). DEL is idempotent, so it does not matter whether the step's plugin has
// already released the addresses.
func (e *Executor) releaseAddresses(ctx context.Context, attachment *Attachment, record *StepRecord) error {
	ipam := cnichain.IPAMType(record.Stdin)
	if ipam == "" {
		return nil
	}
	path, err := e.Exec.FindInPath(ipam, e.Dirs)
	if err != nil {
		return err
	}
	plan := callPlan{command: commandDel, path: path}
	if e.Host.Exists(attachment.Pin) {
		plan.netns = attachment.Pin
	}
	_, err = e.call(ctx, attachment, record, plan)
	return err
}

// removeFromPod removes the step's own interface from the pod if it is still there: a device is moved to the host, and
// any other link is deleted.
func (e *Executor) removeFromPod(attachment *Attachment, record *StepRecord) (found bool, err error) {
	if !record.Step.Makes || record.Step.WithoutInterface() {
		return false, nil
	}
	state, link, err := e.locate(attachment, record)
	if err != nil || state == netnsGone {
		return false, err
	}
	device, away, err := e.away(record, link)
	if err != nil {
		return false, err
	}
	if away && link == nil {
		link, err = e.findInPod(attachment, record)
	}
	if err != nil || link == nil {
		return false, err
	}
	if away && couldBe(link, device) {
		return true, e.Host.MoveToHost(e.namespaceOf(attachment, record), link.Index, *device)
	}
	return true, e.Host.Remove(e.namespaceOf(attachment, record), link.Index)
}

// findInPod finds the device for a step whose ADD was interrupted, under any name. No application has run in the pod
// yet, so a matching MAC address is sufficient proof. It returns nil if the device is not in the pod, or if the
// device's link was recorded after ADD and no longer exists.
func (e *Executor) findInPod(attachment *Attachment, record *StepRecord) (*cnichain.Link, error) {
	if record.Link != nil {
		return nil, nil
	}
	links, err := e.Host.Links(e.namespaceOf(attachment, record))
	if err != nil {
		return nil, err
	}
	for i := range links {
		if isDevice(&links[i], record.Step.Device) {
			return &links[i], nil
		}
	}
	return nil, nil
}

// restoreDevice restores an exclusive device and verifies that it is on the host in its original state.
func (e *Executor) restoreDevice(attachment *Attachment, record *StepRecord) error {
	if !record.Step.OwnsDevice() {
		return nil
	}
	err := e.restore(record.Step.Device)
	if errors.Is(err, os.ErrNotExist) && !record.Step.Device.IsHardware() {
		if known, elsewhere := e.elsewhere(record.Step.Device); known || elsewhere != nil {
			return elsewhere
		}
		if e.destroyed(attachment, record) {
			return nil
		}
	}
	if err == nil {
		e.returned.Store(record.Step.Device.Identity(), true)
	}
	return err
}

// restore restores a device and verifies that it is on the host in its original state. It ignores hardware that has
// been removed: a device that later appears at the same address is a different device.
func (e *Executor) restore(device *cnichain.Device) error {
	if e.Host.Gone(*device) {
		return nil
	}
	return e.Host.Restore(*device)
}

// destroyed reports whether a virtual device that is not on the host no longer exists, because its namespace was
// destroyed or does not contain the device, for example because the other end of a veth was deleted. Hardware always
// returns to the host, but only some time after its namespace was destroyed (net/core/dev.c, default_device_exit_net).
func (e *Executor) destroyed(attachment *Attachment, record *StepRecord) bool {
	device := record.Step.Device
	if device.IsHardware() {
		return false
	}
	state, link, err := e.locate(attachment, record)
	if err != nil {
		return false
	}
	if state == netnsGone || link != nil {
		return state == netnsGone || !couldBe(link, device)
	}
	if device.MAC == "" && record.Link == nil {
		return false // while the namespace exists, the device may still be in it
	}
	link, err = e.findInPod(attachment, record)
	return err == nil && link == nil
}

// couldBe reports whether a link could be the device, judging by its kind: an application cannot create hardware.
func couldBe(link *cnichain.Link, device *cnichain.Device) bool {
	return device.Kind == "" || link.Kind == device.Kind
}

// isMoved reports whether a link in a pod is a virtual device that a plugin moved into the pod. The name is not
// sufficient, because an application can create another link with the same name.
func isMoved(link *cnichain.Link, device *cnichain.Device) bool {
	return device.PCIAddress == "" && device.Index != 0 &&
		link.Kind == device.Kind && link.Parent == device.Parent && sameVLAN(link, device)
}

// isDevice reports whether a link in a pod is the given host device, under any name: a move keeps the MAC address.
// VLANs on one NIC share its MAC address, and a pod may have several of these VLANs.
func isDevice(link *cnichain.Link, device *cnichain.Device) bool {
	return device.HasUniqueMAC() && link.MAC == device.MAC && couldBe(link, device) && sameVLAN(link, device)
}

// sameVLAN reports whether a link is the same VLAN as the device. It also returns true if the device is not a VLAN, or
// if its baseline was recorded by an earlier driver version and does not include the VLAN.
func sameVLAN(link *cnichain.Link, device *cnichain.Device) bool {
	return device.VLANID == 0 && device.VLANProtocol == "" ||
		link.VLANID == device.VLANID && link.VLANProtocol == device.VLANProtocol && link.Parent == device.Parent
}
