package executor

import (
	"fmt"
	"sync"
)

// owners tracks which attachment may touch which exclusive device. A device's owners are numbered by epoch, and the
// journal stores the epoch of each step. If a crash prevents the journal from recording that an old owner's DEL is
// complete, that DEL is repeated, and must not touch the device if it has a newer owner.
type owners struct {
	mu      sync.Mutex
	last    uint64
	devices map[string]owner // by device identity
}

type owner struct {
	sandboxID string
	pod       Pod
	epoch     uint64
}

// load registers an attachment from the journal as the owner of its devices. If several records claim the same device,
// the newest takes precedence: a crash prevented the journal from recording that the others were complete.
func (o *owners) load(attachment *Attachment) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range attachment.Steps {
		record := &attachment.Steps[i]
		o.last = max(o.last, record.Epoch)
		switch record.Phase {
		case StepAdding, StepAdded, StepDeleting:
		case StepPlanned, StepDeleted:
			continue
		}
		identity, owned := ownedDevice(record)
		if owned && record.Epoch >= o.devices[identity].epoch {
			o.devices[identity] = owner{sandboxID: attachment.SandboxID, pod: attachment.Pod, epoch: record.Epoch}
		}
	}
}

// outrank ensures that every later owner is newer than the steps of an attachment, without making the attachment an
// owner. Later attempts to roll back a leftover must not touch the device once it has another owner.
func (o *owners) outrank(attachment *Attachment) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range attachment.Steps {
		o.last = max(o.last, attachment.Steps[i].Epoch)
	}
}

// acquire makes the attachment the owner of the step's device. It returns an error if the device already has an owner,
// because that owner's DEL has not completed yet.
func (o *owners) acquire(attachment *Attachment, record *StepRecord) error {
	identity, owned := ownedDevice(record)
	if !owned {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if holder, held := o.devices[identity]; held {
		return fmt.Errorf("device %s (%s) is still attached to pod %s (sandbox %s); wait until its DEL completes",
			record.Step.Device.Name, identity, holder.pod, holder.sandboxID)
	}
	o.last++
	record.Epoch = o.last
	o.devices[identity] = owner{sandboxID: attachment.SandboxID, pod: attachment.Pod, epoch: o.last}
	return nil
}

// hold makes the step the owner of its device again until done is called, so that no other step can acquire the device
// while the rollback is being retried. If the device already has an owner, that owner keeps it.
func (o *owners) hold(attachment *Attachment, record *StepRecord) (done func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	identity, owned := ownedDevice(record)
	if _, held := o.devices[identity]; held || !owned {
		return func() {}
	}
	o.devices[identity] = owner{sandboxID: attachment.SandboxID, pod: attachment.Pod, epoch: record.Epoch}
	return func() { o.release(record) }
}

// release frees the step's device, unless the device has a newer owner.
func (o *owners) release(record *StepRecord) {
	o.mu.Lock()
	defer o.mu.Unlock()
	identity, owned := ownedDevice(record)
	if owned && o.devices[identity].epoch == record.Epoch {
		delete(o.devices, identity)
	}
}

// newest returns the most recently assigned epoch.
func (o *owners) newest() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}

// hasNewerOwner reports whether the step's device has a newer owner.
func (o *owners) hasNewerOwner(record *StepRecord) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	identity, owned := ownedDevice(record)
	return owned && o.devices[identity].epoch > record.Epoch
}

func ownedDevice(record *StepRecord) (identity string, owned bool) {
	if !record.Step.OwnsDevice() {
		return "", false
	}
	return record.Step.Device.Identity(), true
}
