package executor

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// acquireDevice makes the attachment the owner of the step's exclusive device and reads the device's baseline. It
// returns an error if the device is quarantined, is used by the node itself, or is no longer the device the claim was
// prepared for.
//
// These checks run immediately before ADD, on every attempt and for every sandbox: a claim may stay prepared for days,
// and between attempts the device is on the host, where an administrator may reconfigure it. The owner is set first, so
// that no other attachment can acquire the device between these checks and ADD.
func (e *Executor) acquireDevice(ctx context.Context, attachment *Attachment, record *StepRecord) error {
	if err := e.owners.acquire(attachment, record); err != nil {
		return err
	}
	if record.Step.Device == nil {
		return nil
	}
	now, err := e.currentDevice(ctx, record.Step.Device)
	if err != nil {
		e.owners.release(record)
		return err
	}
	if record.Step.OwnsDevice() {
		e.returned.Delete(now.Identity())
	}
	record.Step.Device = now
	return nil
}

// currentDevice returns a device that is about to be attached, with its current baseline. The plan keeps the baseline
// read during Prepare; the attachment, which later restores the device, uses the current one.
//
// Shared devices stay on the host, and their settings are not restored, so they do not need a new baseline until the
// next reboot. However, their name must still match the one in the plugin's configuration.
func (e *Executor) currentDevice(ctx context.Context, planned *cnichain.Device) (*cnichain.Device, error) {
	if err := e.Quarantined(planned); err != nil {
		return nil, err
	}
	boot, err := e.Host.Boot()
	if err != nil {
		return nil, err
	}
	if !planned.Exclusive && planned.BootID == boot && planned.PCIAddress == "" {
		return planned, nil
	}
	now, err := e.readBaseline(ctx, planned, boot)
	if err == nil && now.IfName != planned.IfName {
		return nil, fmt.Errorf("cannot attach device %s (%s): its interface is called %s now and was %s when the "+
			"claim was prepared; delete the pod and its claim", planned.Name, planned.PCIAddress, now.IfName,
			planned.IfName)
	}
	if err == nil && !planned.Exclusive && planned.BootID == boot {
		return planned, nil
	}
	return now, err
}

// RenewedBaseline returns the device with a baseline from the current boot, reading a new one if the existing baseline
// is from an earlier boot. No pod may be using the device. It returns os.ErrNotExist for an exclusive device that is
// not on the host.
func (e *Executor) RenewedBaseline(ctx context.Context, planned *cnichain.Device) (*cnichain.Device, error) {
	boot, err := e.Host.Boot()
	if err != nil || planned.BootID == boot {
		return planned, err
	}
	return e.readBaseline(ctx, planned, boot)
}

// readBaseline reads the baseline of a device on the host. It returns an error if the node uses the device, or if it is
// not the planned device.
func (e *Executor) readBaseline(ctx context.Context, planned *cnichain.Device, boot string) (*cnichain.Device, error) {
	free := make(chan error, 1)
	switch {
	case !planned.Exclusive || e.CheckFree == nil:
		free <- nil
	case planned.AllowInUse: // the baseline contains the addresses and routes that the check allows
		free <- e.CheckFree(ctx, planned)
	default: // both read a lot of data from the kernel while the pod waits
		go func() { free <- e.CheckFree(ctx, planned) }()
	}
	now, err := e.Host.Snapshot(*planned)
	if err := <-free; err != nil {
		return nil, err
	}
	if err != nil && (planned.Exclusive || planned.PCIAddress != "" && planned.BootID == boot) {
		return nil, err
	}
	if err != nil { // a shared device is not restored, and the plugin fails if it is missing
		now = *planned
		now.Baseline = cnichain.Baseline{}
	}
	isOther := now.Kind != planned.Kind || now.VLANID != planned.VLANID
	if planned.Exclusive && planned.Kind != "" && planned.PCIAddress == "" && isOther {
		return nil, fmt.Errorf("cannot use device %s: its interface %s is another link (%s%s, was %s%s when the claim "+
			"was prepared); delete the pod and its claim", planned.Name, planned.IfName, now.Kind, vlanSuffix(&now),
			planned.Kind, vlanSuffix(planned))
	}
	return &now, nil
}

func vlanSuffix(device *cnichain.Device) string {
	if device.VLANID == 0 {
		return ""
	}
	return fmt.Sprintf(" with ID %d", device.VLANID)
}

// checkReturned returns an error unless a released claim's device is on the host and matches its baseline. If this
// process restored the device after the last pod that used it, the device only has to be on the host: any later
// differences are changes made by an administrator.
func (e *Executor) checkReturned(device *cnichain.Device) error {
	if _, isReturned := e.returned.Load(device.Identity()); !isReturned {
		return e.restore(device)
	}
	if e.Host.Gone(*device) {
		return nil
	}
	onHost, err := e.Host.OnHost(*device)
	if err == nil && !onHost {
		return errors.Join(fmt.Errorf("device %s is not on the host", device.Name), os.ErrNotExist)
	}
	return err
}
