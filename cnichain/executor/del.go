package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dra-networking/dra-network-driver/cnichain/host"
)

// Del rolls back an attachment, or only the steps of the given claims. It calls DEL for every step that may have had an
// effect, in reverse order and with the stdin from the step's ADD, and verifies that every exclusive device is on the
// host. Del may be called in any phase and any number of times; each call continues where the previous call stopped. It
// attempts all steps and joins the errors. After a complete rollback, it unpins the namespace and deletes the record.
// Until then, the record remains in the journal, and the caller must retry later.
//
// Del does not fail forever: a step that fails too often or for too long becomes a [Leftover] and is treated as rolled
// back.
func (e *Executor) Del(ctx context.Context, attachment *Attachment, claims ...string) error {
	release, err := e.sandboxes.Acquire(ctx, attachment.SandboxID)
	if err != nil {
		return err
	}
	defer release()
	return e.delAll(ctx, attachment, claims)
}

// delAll is Del for callers that hold the sandbox's semaphore. It records which steps to roll back, ensures that the
// pin exists, rolls back the steps from last to first, and deletes the record when all steps are rolled back. Without a
// pin, it does not roll back anything: a namespace that still exists would be treated as deleted, and a device in it as
// destroyed.
func (e *Executor) delAll(ctx context.Context, attachment *Attachment, claims []string) error {
	boot, err := e.Host.Boot()
	if err != nil {
		return err
	}
	var problems []error
	if markDeleting(attachment, boot, claims) || attachment.unsaved {
		// Roll back the steps even if the journal cannot be written. The record remains until the journal is writable
		// again.
		if err := e.note(attachment); err != nil {
			problems = append(problems, err)
		}
	}
	if err := e.pinAgain(attachment, boot); err != nil { // without a pin, the namespace would seem to be deleted
		return errors.Join(append(problems, err)...)
	}
	// A failed step does not prevent the others from being rolled back: a hanging plugin must not tie up other steps'
	// devices. If no time is left for a step, its rollback is not started, which does not count as a failure.
	for i := len(attachment.Steps) - 1; i >= 0; i-- {
		record := &attachment.Steps[i]
		if record.Phase != StepDeleting {
			continue
		}
		if ctx.Err() != nil {
			problems = append(problems, fmt.Errorf("no time left to undo %s: %w", record.Title(),
				context.Cause(ctx)))
			break
		}
		if err := e.delStep(ctx, attachment, record); err != nil {
			problems = append(problems, err)
		}
	}
	if isDeleted(attachment) {
		defer e.releaseOwners(attachment) // also if the journal fails: another process sees the newer epoch
		// Earlier notes that could not be written are no longer needed. On a full disk, deleting the record may be the
		// only write that still fits, so no other change is written before it.
		if err := e.finish(attachment); err != nil {
			return errors.Join(append(problems, err)...)
		}
		problems = nil
	}
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	attachment.failingSince = time.Time{}
	return nil
}

// pinAgain pins a namespace that exists but has no pin, either because the pin was removed or because the driver was
// killed before creating it. Without a pin, the namespace would be treated as deleted, and its links as destroyed. If
// no step has to be rolled back, the namespace is not pinned, since the pin would only have to be removed again.
func (e *Executor) pinAgain(attachment *Attachment, boot string) error {
	if !slices.ContainsFunc(attachment.Steps, func(r StepRecord) bool { return r.Phase == StepDeleting }) {
		return nil
	}
	if attachment.NetNSID == "" || attachment.NetNS == "" || e.Host.Exists(attachment.Pin) ||
		!e.Host.Exists(attachment.NetNS) {
		return nil
	}
	if boot != attachment.BootID {
		return nil
	}
	if id, err := e.Host.NamespaceID(attachment.NetNS); err != nil || id != attachment.NetNSID {
		return nil //nolint:nilerr // the path belongs to another namespace or no longer exists
	}
	return e.Host.Pin(attachment.NetNS, attachment.Pin)
}

// markDeleting marks the steps to be rolled back; without claims, it marks all steps. It reports whether the record has
// changed and must be written to the journal. If only some claims are detached, the attachment's phase does not change,
// since its other claims are still in use. boot is the current boot ID.
func markDeleting(attachment *Attachment, boot string, claims []string) (changed bool) {
	if len(claims) == 0 && attachment.Phase != PhaseDetaching {
		attachment.Phase, changed = PhaseDetaching, true
	}
	for i := range attachment.Steps {
		record := &attachment.Steps[i]
		if len(claims) > 0 && !slices.Contains(claims, record.Claim.UID) {
			continue
		}
		switch {
		case record.Phase == StepAdding, record.Phase == StepAdded,
			record.Phase == StepPlanned && record.Announced && attachment.BootID != boot:
			record.Phase, changed = StepDeleting, true
		// This needs no commit: after a crash, the step is Planned again and is handled in the same way or, after a
		// reboot, with an additional DEL.
		case record.Phase == StepPlanned:
			record.Phase = StepDeleted // the step was never started
		}
	}
	return changed
}

// delStep rolls back a step and records the result.
//
// The step's completion is written before its device is released, so that the journal never records a new owner before
// the completion. For the last step, that write is the deletion of the record: see finish.
func (e *Executor) delStep(ctx context.Context, attachment *Attachment, record *StepRecord) error {
	failure := e.undo(ctx, attachment, record)
	if failure != nil {
		failure = stepError(record, commandDel, failure)
		if ctx.Err() != nil {
			return failure // not counted as a failure: other steps have used up the available time
		}
		e.countFailure(attachment, record)
		if !e.retriesExhausted(attachment, record) {
			return errors.Join(failure, e.note(attachment))
		}
		// The interface is no longer needed, and its namespace is destroyed with the pod.
		failure = errors.Join(failure, e.releaseAddresses(ctx, attachment, record))
		// Write the leftover to disk before marking the step as deleted. After a crash in between, both exist: the step
		// is then rolled back again, and its leftover is rewritten under the same key. In the reverse order, a crash in
		// between would lose track of the device.
		if err := e.recordLeftover(attachment, record, failure); err != nil {
			return errors.Join(failure, err)
		}
	}
	record.Phase = StepDeleted
	if isDeleted(attachment) { // finish combines both into one commit
		attachment.unsaved = true
		return nil
	}
	err := e.note(attachment)
	e.owners.release(record) // also after an error: this process has the result, and another one sees the newer epoch
	return err
}

// save writes the record to disk, and records whether the write failed.
func (e *Executor) save(attachment *Attachment) error {
	err := e.Journal.Save(attachment)
	attachment.unsaved = err != nil
	return err
}

// note is like save, but for state that does not have to survive a reboot. This includes every DEL result: if one is
// lost, DEL is repeated.
func (e *Executor) note(attachment *Attachment) error {
	err := e.Journal.Note(attachment)
	attachment.unsaved = err != nil
	return err
}

func (e *Executor) releaseOwners(attachment *Attachment) {
	for i := range attachment.Steps {
		e.owners.release(&attachment.Steps[i])
	}
}

// isDeleted reports whether all steps of an attachment have been rolled back.
func isDeleted(attachment *Attachment) bool {
	return !slices.ContainsFunc(attachment.Steps, func(record StepRecord) bool { return record.Phase != StepDeleted })
}

// finish deletes the record of a completely rolled-back attachment ([isDeleted]).
//
// Pins are removed before the record. A crash in between leaves a record without pins, for which finish simply runs
// again. In the reverse order, a crash would leave pins without a record, and therefore orphaned namespaces that may
// contain devices.
func (e *Executor) finish(attachment *Attachment) error {
	if err := e.unpinReturned(attachment); err != nil {
		return err
	}
	for _, path := range []string{host.PlaceholderPath(attachment.Pin), attachment.Pin} {
		if err := e.Host.Unpin(path); err != nil {
			if attachment.unsaved {
				err = errors.Join(err, e.note(attachment))
			}
			return err
		}
	}
	return e.Journal.Delete(attachment.SandboxID)
}
