package executor

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// Leftover is a step that could not be rolled back despite many attempts. It does not prevent its pod from terminating.
// If the step owns an exclusive device, the device is quarantined: no pod can use it until [Executor.Retry] succeeds.
type Leftover struct {
	// Key is unique and stable. It is composed of the sandbox, claim, step and instance.
	Key string `json:"key"`
	// Attachment contains only this step.
	Attachment Attachment `json:"attachment"`
	Since      time.Time  `json:"since"`
	// Reason is the last failure, and Attempts is the number of failures.
	Reason   string `json:"reason"`
	Attempts int    `json:"attempts"`
	// OnHost is true if the device is on the host in its original state, or has a newer owner. The device is then
	// available to other claims, and all that remains is other state created by the plugin.
	OnHost bool `json:"onHost,omitempty"`
}

// storedLeftover is the format of a leftover in the journal and on the node socket. Versions of the driver and netdra
// that predate the field "onHost" read the field "home" instead. If "home" were missing, they would quarantine a free
// device.
type storedLeftover struct {
	leftoverFields
	OnHost bool `json:"home,omitempty"`
}

// leftoverFields has the fields of Leftover but not its methods, which would otherwise call themselves recursively.
type leftoverFields Leftover

// MarshalJSON writes OnHost under both its current and its former name.
func (l Leftover) MarshalJSON() ([]byte, error) {
	return json.Marshal(storedLeftover{leftoverFields: leftoverFields(l), OnHost: l.OnHost})
}

// UnmarshalJSON reads OnHost under its current or its former name.
func (l *Leftover) UnmarshalJSON(data []byte) error {
	var stored storedLeftover
	if err := json.Unmarshal(data, &stored); err != nil {
		return err
	}
	*l = Leftover(stored.leftoverFields)
	l.OnHost = l.OnHost || stored.OnHost
	return nil
}

// Step returns the step that could not be rolled back.
func (l *Leftover) Step() *StepRecord { return &l.Attachment.Steps[0] }

// Quarantines returns the exclusive device that is quarantined, or nil if there is none.
func (l *Leftover) Quarantines() *cnichain.Device {
	if !l.Step().Step.OwnsDevice() || l.OnHost {
		return nil
	}
	return l.Step().Step.Device
}

// leftovers is an index of the leftovers in the journal.
type leftovers struct {
	mu    sync.Mutex
	byKey map[string]Leftover
	// away counts, by device identity, how many times a device without an attachment was missing from the host.
	away map[string]int
}

func (l *leftovers) returned(identity string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.away, identity)
}

func (l *leftovers) countAway(identity string) (times int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away[identity]++
	return l.away[identity]
}

func (l *leftovers) put(leftover Leftover) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.byKey[leftover.Key] = leftover
}

func (l *leftovers) remove(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byKey, key)
}

func (l *leftovers) get(key string) (Leftover, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	leftover, found := l.byKey[key]
	return leftover, found
}

// checkSandbox returns an error if a sandbox has leftovers, since rolling them back later would also undo a new
// attachment.
func (l *leftovers) checkSandbox(id string) error {
	for _, leftover := range l.all() {
		if leftover.Attachment.SandboxID == id {
			return fmt.Errorf("an earlier attempt in this sandbox could not be rolled back, so the driver does "+
				"not try again; delete the pod: %s", leftover.Reason)
		}
	}
	return nil
}

// all returns the leftovers, sorted by key so that two results can be compared.
func (l *leftovers) all() []Leftover {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]Leftover, 0, len(l.byKey))
	for _, key := range slices.Sorted(maps.Keys(l.byKey)) {
		list = append(list, l.byKey[key])
	}
	return list
}

// countFailure records a failed DEL. The record's FailingSince is stored and shown to users. The attachment's
// failingSince is not stored and determines when to give up.
func (e *Executor) countFailure(attachment *Attachment, record *StepRecord) {
	now := e.Clock.Now()
	record.Failures++
	if record.FailingSince == nil {
		record.FailingSince = &now
	}
	if attachment.failingSince.IsZero() {
		attachment.failingSince = now
	}
}

// retriesExhausted reports whether a step has failed too often, or its attachment for too long. The time is measured
// for the attachment as a whole: if several steps hang, each attempt has time for only a few of them, so per-step
// limits would add up. Only time spent in this process counts.
func (e *Executor) retriesExhausted(attachment *Attachment, record *StepRecord) bool {
	return record.Failures >= e.GiveUpAttempts || e.Clock.Since(attachment.failingSince) >= e.GiveUpAfter
}

// recordLeftover records that a step cannot be rolled back. The device is quarantined before it is released.
//
// The attachment and the step are copied, since the attachment continues without this step and its phase may change.
// Like every restore operation, the check for whether the device is on the host may also repair the device.
func (e *Executor) recordLeftover(attachment *Attachment, record *StepRecord, reason error) error {
	alone := *record
	alone.Step.DependsOn = nil
	only := *attachment
	only.Phase, only.Steps = PhaseDetaching, []StepRecord{alone}
	leftover := Leftover{
		Key: fmt.Sprintf("%s/%s/%s/%d", attachment.SandboxID, record.Claim.UID, record.Step.Name,
			record.Step.Instance),
		Attachment: only, Since: *record.FailingSince, Reason: reason.Error(), Attempts: record.Failures,
		OnHost: e.owners.hasNewerOwner(record) || e.restoreDevice(attachment, record) == nil,
	}
	if err := e.Journal.SaveLeftover(leftover); err != nil {
		return err
	}
	e.leftovers.put(leftover)
	if e.OnLeftover != nil {
		e.OnLeftover(leftover)
	}
	return nil
}

// VerifyReturned is called when a claim is released. It verifies that the exclusive devices in the claim's plans are on
// the host in their original state, regardless of the journal, since an attachment's record may be damaged. A
// virtual device that is missing from the host is not part of any attachment, so it no longer exists. The error lists
// the devices that have not returned, and the caller must retry. After GiveUpAttempts failures, the missing device is
// quarantined, as in Del, and no longer causes an error.
func (e *Executor) VerifyReturned(plans []cnichain.Plan) error {
	var problems []error
	for _, plan := range plans {
		steps := plan.DeviceSteps()
		for i := range steps {
			step := &steps[i]
			record := StepRecord{Claim: plan.Claim, Topology: plan.Topology, Step: *step, Phase: StepDeleting}
			if !record.Step.OwnsDevice() || e.Quarantined(step.Device) != nil {
				continue
			}
			if err := e.verifyReturned(&record); err != nil {
				problems = append(problems, err)
			}
		}
	}
	return errors.Join(problems...)
}

// verifyReturned is VerifyReturned for one device. The sandbox ID of any leftover that it creates is claim-<UID>, which
// no runtime uses. Since there is no pin and no plugin to call, [Executor.Retry] only restores the device.
func (e *Executor) verifyReturned(record *StepRecord) error {
	device := record.Step.Device
	err := e.checkReturned(device)
	if err == nil || errors.Is(err, os.ErrNotExist) && !device.IsHardware() {
		e.leftovers.returned(device.Identity())
		return nil
	}
	record.Failures = e.leftovers.countAway(device.Identity())
	now := e.Clock.Now()
	record.FailingSince = &now
	if record.Failures < e.GiveUpAttempts {
		return err
	}
	// No plugin is called.
	record.Step.Quirks.DelWithoutNetns, record.Step.Quirks.DelNeedsInterface = cnichain.DelNetnsSkip, false
	// This epoch is at least as recent as the current owner's, if there is one.
	record.Epoch = e.owners.newest()
	attachment := &Attachment{SandboxID: "claim-" + record.Claim.UID}
	if err := e.recordLeftover(attachment, record, err); err != nil {
		return err
	}
	e.leftovers.returned(device.Identity()) // the next claim starts counting from zero
	return nil
}
