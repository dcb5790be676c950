package executor

import (
	"context"
	"errors"
	"fmt"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// Load fills a new executor with the records from the journal, by key. It must be called before any other method. From
// then on, every device in use has an owner until its attachment is rolled back, so no other pod can acquire the
// device.
func (e *Executor) Load(attachments map[string]*Attachment, leftovers map[string]Leftover) {
	for _, attachment := range attachments {
		adoptBoot(attachment)
		e.owners.load(attachment)
	}
	for _, leftover := range leftovers {
		adoptBoot(&leftover.Attachment)
		e.owners.outrank(&leftover.Attachment)
		e.leftovers.put(leftover)
	}
}

// adoptBoot completes records from driver versions that did not record the boot ID with a baseline. The baseline was
// read during the attachment's boot or an earlier one, so its link index is unreliable.
func adoptBoot(attachment *Attachment) {
	for i := range attachment.Steps {
		step := &attachment.Steps[i].Step
		if step.Device == nil || step.Device.BootID != "" {
			continue
		}
		device := *step.Device
		device.BootID, device.Index = attachment.BootID, 0
		step.Device = &device
	}
}

// Leftovers returns the steps that could not be rolled back, sorted by key.
func (e *Executor) Leftovers() []Leftover { return e.leftovers.all() }

// Quarantined returns an error if a device must not be used because cleanup failed after an earlier pod. It returns nil
// for usable devices.
func (e *Executor) Quarantined(device *cnichain.Device) error {
	for _, leftover := range e.leftovers.all() {
		if held := leftover.Quarantines(); held != nil && held.Identity() == device.Identity() {
			return &QuarantineError{Leftover: leftover}
		}
	}
	return nil
}

// QuarantineError is the error for a quarantined device.
type QuarantineError struct{ Leftover Leftover }

// Error returns a message that states when and why the device was quarantined, and suggests a fix.
func (e *QuarantineError) Error() string {
	held := e.Leftover.Step().Step.Device
	return fmt.Sprintf("device %s (%s) has been in quarantine since %s: after claim %s it could not be returned to "+
		"the host in %d attempts; remove the cause, and the driver offers it again: %s",
		held.Name, held.Identity(), e.Leftover.Since.UTC().Format("2006-01-02 15:04:05"), e.Leftover.Step().Claim,
		e.Leftover.Attempts, e.Leftover.Reason)
}

// Retry retries the rollback of a leftover, and deletes the leftover if the rollback succeeds. It returns nil if the
// key is unknown.
func (e *Executor) Retry(ctx context.Context, key string) error {
	return e.retry(ctx, key, nil)
}

// Forget is like Retry, but for a leftover whose rollback can never succeed, for example because the plugin rejects its
// configuration. Even if DEL fails again, Forget deletes the leftover, provided that its exclusive device is on the
// host in its original state, or has a newer owner. failure is the error from DEL, or nil after a complete rollback.
// Other state created by the plugin, such as addresses and rules, remains.
func (e *Executor) Forget(ctx context.Context, key string) (failure, err error) {
	err = e.retry(ctx, key, func(record *StepRecord, delFailure, away error) error {
		if away != nil {
			return fmt.Errorf("cannot abandon %s: its device is not on the host in its original state: %w; restore "+
				"the device first", record.Title(), away)
		}
		if ctx.Err() != nil { // there was no time for an attempt, so keep the leftover
			return delFailure
		}
		failure = delFailure
		return nil
	})
	if err != nil {
		return nil, err
	}
	return failure, nil
}

// retry rolls back a leftover. If the rollback fails, forgive decides whether to delete the leftover anyway; if forgive
// is nil, retry returns the failure. The last argument to forgive is the reason why the device could not be restored,
// or nil if the device was restored or has a newer owner.
func (e *Executor) retry(
	ctx context.Context, key string, forgive func(record *StepRecord, failure, away error) error,
) error {
	leftover, known := e.leftovers.get(key)
	if !known {
		return nil
	}
	release, err := e.sandboxes.Acquire(ctx, leftover.Attachment.SandboxID)
	if err != nil {
		return err
	}
	defer release()
	// Another call may have rolled back the leftover while this one was waiting.
	if leftover, known = e.leftovers.get(key); !known {
		return nil
	}
	defer e.owners.hold(&leftover.Attachment, leftover.Step())()
	if err := e.undo(ctx, &leftover.Attachment, leftover.Step()); err != nil {
		failure := stepError(leftover.Step(), commandDel, err)
		away, err := e.endQuarantine(leftover)
		if err != nil || forgive == nil {
			return errors.Join(failure, err)
		}
		if err := forgive(leftover.Step(), failure, away); err != nil {
			return err
		}
	}
	if err := e.Journal.DeleteLeftover(key); err != nil {
		return err
	}
	e.leftovers.remove(key)
	return nil
}

// endQuarantine makes a device available again once it is on the host, even though the plugin's DEL still fails. away
// is the reason why the device is not on the host; err is an error from the journal.
func (e *Executor) endQuarantine(leftover Leftover) (away, err error) {
	record := leftover.Step()
	if !e.owners.hasNewerOwner(record) {
		away = e.restoreDevice(&leftover.Attachment, record)
	}
	if leftover.OnHost || away != nil {
		return away, nil
	}
	leftover.OnHost = true
	if err := e.Journal.SaveLeftover(leftover); err != nil {
		return nil, err
	}
	e.leftovers.put(leftover)
	return nil, nil
}
