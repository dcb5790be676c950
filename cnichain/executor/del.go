package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dra-networking/dra-network-driver/cnichain/host"
)

// Del undoes an attachment, or only the steps of some of its claims: DEL of every step that may have had an effect, in
// reverse order, each with the stdin of its ADD, and every exclusive device proven to be on the host. It may be called
// in any phase, any number of times, and goes on where it stopped. It tries everything and joins the errors. When
// nothing is left the namespace is unpinned and the record deleted; until then the record stays, and the caller tries
// again later.
//
// It does not fail for ever: a step that fails too often or too long becomes a [Leftover], and counts as done.
func (e *Executor) Del(ctx context.Context, attachment *Attachment, claims ...string) error {
	release, err := e.sandboxes.Acquire(ctx, attachment.SandboxID)
	if err != nil {
		return err
	}
	defer release()
	return e.delAll(ctx, attachment, claims)
}

// delAll is Del for callers that hold the sandbox's semaphore. It writes down what is to be undone, makes sure of the
// pin, undoes the steps from the last to the first, and forgets the attachment when nothing of it is left. Without a
// pin it undoes nothing: a namespace that lives would count as gone, and a device in it as destroyed.
func (e *Executor) delAll(ctx context.Context, attachment *Attachment, claims []string) error {
	boot, err := e.Host.Boot()
	if err != nil {
		return err
	}
	var problems []error
	if markDeleting(attachment, boot, claims) || attachment.unsaved {
		// A journal that can't be written must not keep anything attached; the record stays until it can be.
		if err := e.note(attachment); err != nil {
			problems = append(problems, err)
		}
	}
	if err := e.pinAgain(attachment, boot); err != nil { // nothing in the namespace may count as gone
		return errors.Join(append(problems, err)...)
	}
	// A step that fails keeps no other from being undone: a plugin that hangs must not hold the devices of others. A
	// step for which no time is left is not begun, and no failure is counted for it.
	for i := len(attachment.Steps) - 1; i >= 0; i-- {
		record := &attachment.Steps[i]
		if record.Phase != StepDeleting {
			continue
		}
		if ctx.Err() != nil {
			problems = append(problems, fmt.Errorf("no time is left to undo %s: %w", record.Title(),
				context.Cause(ctx)))
			break
		}
		if err := e.delStep(ctx, attachment, record); err != nil {
			problems = append(problems, err)
		}
	}
	if isDeleted(attachment) {
		defer e.releaseOwners(attachment) // also if the journal can't be told: another process will see the newer epoch
		// Notes that failed earlier are no longer needed. On a full disk, the end of the record may be the only change
		// that fits, and no other change is written before it.
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

// pinAgain pins an existing namespace without a pin, because the pin was removed or the driver was killed before it was
// made: without it, the namespace would count as gone, and its links as destroyed. If no step has to be rolled back, it
// is empty, and a pin would only have to be removed again.
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
		return nil //nolint:nilerr // the path is another namespace's, or gone by now
	}
	return e.Host.Pin(attachment.NetNS, attachment.Pin)
}

// markDeleting says which steps are to be undone; no claims mean all. It reports whether that is news for the journal.
// Where only some claims leave, the phase of the attachment stays, since the others go on using it. boot is the
// kernel's now.
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
		// This needs no commit: a crash brings the step back as Planned, which is undone in the same way, or by one
		// more DEL after another boot.
		case record.Phase == StepPlanned:
			record.Phase = StepDeleted // nothing was done
		}
	}
	return changed
}

// delStep undoes a step and records how that went.
//
// The end of the step is written before its device loses the owner, so that no later owner is in the journal first. The
// last step's end is the deletion of the record: see finish.
func (e *Executor) delStep(ctx context.Context, attachment *Attachment, record *StepRecord) error {
	failure := e.undo(ctx, attachment, record)
	if failure != nil {
		failure = stepError(record, commandDel, failure)
		if ctx.Err() != nil {
			return failure // it had no chance: others have used up the time
		}
		e.countFailure(attachment, record)
		if !e.retriesExhausted(attachment, record) {
			return errors.Join(failure, e.note(attachment))
		}
		// The interface is no longer needed, and its namespace ends with the pod.
		failure = errors.Join(failure, e.releaseAddresses(ctx, attachment, record))
		// The leftover is on disk before the step counts as deleted. A crash in between leaves both: the step is then
		// rolled back again, and its leftover is rewritten under the same key. In the opposite order, the device would
		// be lost.
		if err := e.recordLeftover(attachment, record, failure); err != nil {
			return errors.Join(failure, err)
		}
	}
	record.Phase = StepDeleted
	if isDeleted(attachment) { // finish makes one commit of it
		attachment.unsaved = true
		return nil
	}
	err := e.note(attachment)
	e.owners.release(record) // also when that failed: this process knows, and another will see the newer epoch
	return err
}

// save writes the record to the disk, and remembers when it could not.
func (e *Executor) save(attachment *Attachment) error {
	err := e.Journal.Save(attachment)
	attachment.unsaved = err != nil
	return err
}

// note is like save, for state that ends with the machine. This includes all of DEL: a lost DEL is repeated.
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

// isDeleted reports whether all steps of an attachment are rolled back.
func isDeleted(attachment *Attachment) bool {
	return !slices.ContainsFunc(attachment.Steps, func(record StepRecord) bool { return record.Phase != StepDeleted })
}

// finish deletes the record of a completely rolled back attachment ([isDeleted]).
//
// Pins are removed before the record: a crash in between leaves a record without pins, which is finished again. In the
// opposite order, pins without a record would remain, and with them namespaces that hold devices.
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
