package cnichain

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
)

// repairAfter is how often a plugin's DEL may fail before the driver does itself what it can.
const repairAfter = 3

// undo leaves nothing of a step: DEL, whatever the plugin has left in the pod although it said that it had not, addresses,
// and the exclusive device proven home. What is not the step's own is never touched.
func (e *Executor) undo(ctx context.Context, attachment *Attachment, record *StepRecord) error {
	if e.owners.passedOn(record) {
		return e.releaseAddresses(ctx, attachment, record) // these are kept by sandbox
	}
	failure := e.del(ctx, attachment, record)
	if failure != nil && record.Failures+1 < repairAfter {
		return failure
	}
	found, err := e.takeOut(attachment, record)
	if found || failure != nil {
		err = errors.Join(err, e.releaseAddresses(ctx, attachment, record))
	}
	_, exclusive := ownedDevice(record)
	err = errors.Join(err, e.bringHome(attachment, record))
	if err == nil && exclusive {
		return nil // proven, whatever the plugin says
	}
	return errors.Join(failure, err)
}

// place is where the interface of a step is.
type place int

const (
	// nowhere: the pod's namespace is gone.
	nowhere place = iota
	// named: it has its name, or it is not known which it is and something has the name that was free before.
	named
	// renamed: it has another name, and its own is free.
	renamed
	// apart: it has another name, and another link has its own.
	apart
	// foreign: it is gone, and another link has its name.
	foreign
	// absent: it is gone, and so is the name.
	absent
)

// locate finds the interface of a step by its index: a name says nothing, the application may have given it to another.
func (e *Executor) locate(attachment *Attachment, record *StepRecord) (place, *Link, error) {
	if !e.Host.Exists(attachment.Pin) {
		return nowhere, nil, nil
	}
	links, err := e.Host.Links(attachment.Pin)
	if err != nil {
		return nowhere, nil, err
	}
	holder := findLink(links, record.IfName)
	known := knownLink(attachment, record)
	switch {
	case record.Foreign:
		return foreign, nil, nil
	case holder != nil && (known == nil || holder.Index == known.Index):
		return named, holder, nil
	case known == nil:
		return absent, nil, nil
	}
	for i := range links {
		if links[i].Index != known.Index {
			continue
		}
		if holder == nil {
			return renamed, &links[i], nil
		}
		return apart, &links[i], nil
	}
	if holder != nil {
		return foreign, nil, nil
	}
	return absent, nil, nil
}

// knownLink is the interface that the step made, or that it worked on, as it was seen then. Nil if it was not.
func knownLink(attachment *Attachment, record *StepRecord) *Link {
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

// del calls the plugin's DEL such that it finds its interface and no other's.
func (e *Executor) del(ctx context.Context, attachment *Attachment, record *StepRecord) error {
	where, link, err := e.locate(attachment, record)
	if err != nil {
		return err
	}
	switch where {
	case nowhere, foreign:
		return e.delWithoutNetns(ctx, attachment, record)
	case absent:
		if record.Step.Quirks.DelNeedsInterface && record.Failures+1 < repairAfter {
			return e.delWithoutNetns(ctx, attachment, record)
		}
	case apart:
		if _, err := e.takeOut(attachment, record); err != nil {
			return err
		}
		return e.delWithoutNetns(ctx, attachment, record)
	case renamed:
		if err := e.Host.Rename(attachment.Pin, link.Index, record.IfName); err != nil {
			return err
		}
	case named:
	}
	if err := e.undress(attachment, record, link); err != nil {
		return err
	}
	_, failure := e.call(ctx, attachment, record, callPlan{command: commandDel, path: record.Step.Path, netns: attachment.Pin, stdin: delStdin(record)})
	if failure == nil {
		return nil
	}
	// A plugin may fail because the interface is gone already. Then only its addresses may be left.
	where, _, err = e.locate(attachment, record)
	if err != nil || where != absent {
		return failure
	}
	return e.releaseAddresses(ctx, attachment, record)
}

// undress makes a device fit for coming home: the plugin's DEL can't know what the application has done to it.
func (e *Executor) undress(attachment *Attachment, record *StepRecord, link *Link) error {
	_, exclusive := ownedDevice(record)
	if link == nil || !exclusive || !record.Step.Makes || !errors.Is(e.Host.Restore(*record.Step.Device), os.ErrNotExist) {
		return nil
	}
	return e.Host.Undress(attachment.Pin, link.Index, *record.Step.Device)
}

// delWithoutNetns undoes a step whose interface went with its namespace, or must not be looked for by name.
func (e *Executor) delWithoutNetns(ctx context.Context, attachment *Attachment, record *StepRecord) error {
	plan := callPlan{command: commandDel, path: record.Step.Path, stdin: delStdin(record)}
	switch {
	case record.Step.Quirks.DelNeedsInterface && record.Result != nil:
		return e.delStandIn(ctx, attachment, record, plan)
	case record.Step.Quirks.DelWithoutNetns == delNetnsSkip:
		return e.releaseAddresses(ctx, attachment, record)
	case record.Step.Quirks.DelWithoutNetns == delNetnsStalePath:
		plan.netns = attachment.Pin + ".gone" // where nothing ever is
	}
	_, err := e.call(ctx, attachment, record, plan)
	if err != nil && !record.Step.Quirks.DelFailsWithoutNetns {
		return err
	}
	if err != nil || record.Step.Quirks.LeaksIPAM {
		return e.releaseAddresses(ctx, attachment, record)
	}
	return nil
}

// delStandIn calls DEL on an interface that is made for it.
func (e *Executor) delStandIn(ctx context.Context, attachment *Attachment, record *StepRecord, plan callPlan) (err error) {
	result, err := parseResult(record.Result, record.Step.CNIVersion)
	if err != nil {
		return err
	}
	var addresses []net.IPNet
	for _, ip := range result.IPs {
		addresses = append(addresses, ip.Address)
	}
	plan.netns = standIn(attachment)
	if err := e.Host.StandIn(plan.netns, record.IfName, addresses); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Host.Unpin(plan.netns)) }()
	_, err = e.call(ctx, attachment, record, plan)
	return err
}

// standIn is where the namespace of a stand-in is. A crash may leave it; then it goes with the pin.
func standIn(attachment *Attachment) string { return attachment.Pin + ".standin" }

// releaseAddresses calls the step's IPAM plugin itself, as the step's plugin would have (CNI specification, section 4
// "Delegated plugin execution procedure").
func (e *Executor) releaseAddresses(ctx context.Context, attachment *Attachment, record *StepRecord) error {
	ipam := ipamType(record.Stdin)
	if ipam == "" {
		return nil
	}
	path, err := e.Exec.FindInPath(ipam, e.Dirs)
	if err != nil {
		return err
	}
	plan := callPlan{command: commandDel, path: path, stdin: delStdin(record)}
	if e.Host.Exists(attachment.Pin) {
		plan.netns = attachment.Pin
	}
	_, err = e.call(ctx, attachment, record, plan)
	return err
}

// takeOut removes the step's own interface from the pod if it is still there: a device is sent home, anything else deleted.
func (e *Executor) takeOut(attachment *Attachment, record *StepRecord) (found bool, err error) {
	if !record.Step.Makes {
		return false, nil
	}
	where, link, err := e.locate(attachment, record)
	if err != nil || where == nowhere {
		return false, err
	}
	device := record.Step.Device
	if _, exclusive := ownedDevice(record); exclusive && errors.Is(e.Host.Restore(*device), os.ErrNotExist) {
		if link == nil {
			link, err = e.findInPod(attachment, device)
		}
		if err != nil || link == nil {
			return false, err
		}
		return true, e.Host.SendHome(attachment.Pin, link.Index, *device)
	}
	if link == nil {
		return false, nil
	}
	return true, e.Host.Remove(attachment.Pin, link.Index)
}

// findInPod finds a device in a pod whatever it is called there; nil if it is not there.
func (e *Executor) findInPod(attachment *Attachment, device *Device) (*Link, error) {
	links, err := e.Host.Links(attachment.Pin)
	if err != nil {
		return nil, err
	}
	for i := range links {
		if isDevice(&links[i], device) {
			return &links[i], nil
		}
	}
	return nil, nil
}

// bringHome proves that an exclusive device is on the host as it was.
func (e *Executor) bringHome(attachment *Attachment, record *StepRecord) error {
	if _, exclusive := ownedDevice(record); !exclusive {
		return nil
	}
	err := e.Host.Restore(*record.Step.Device)
	if errors.Is(err, os.ErrNotExist) && e.destroyed(attachment, record) {
		return nil
	}
	return err
}

// destroyed says whether a virtual device that is not on the host does not exist any more: the namespace that it was in is
// gone, or does not have it, for example because the other end of a veth was deleted. Hardware always comes back, though
// some time after its namespace has gone (net/core/dev.c, default_device_exit_net).
func (e *Executor) destroyed(attachment *Attachment, record *StepRecord) bool {
	device := record.Step.Device
	if device.hardware() {
		return false
	}
	if !e.Host.Exists(attachment.Pin) {
		return true
	}
	if record.Link != nil {
		links, err := e.Host.Links(attachment.Pin)
		if err != nil || hasIndex(links, record.Link.Index) {
			return false
		}
	}
	link, err := e.findInPod(attachment, device)
	return err == nil && link == nil
}

func hasIndex(links []Link, index int) bool {
	return slices.ContainsFunc(links, func(link Link) bool { return link.Index == index })
}

// isDevice says whether a link in a pod is a device of the host, whatever it is called: a move keeps its address.
func isDevice(link *Link, device *Device) bool { return device.MAC != "" && link.MAC == device.MAC }
