package cnichain

import (
	"fmt"
	"sync"
	"time"
)

// Leftover is a step that could not be undone after many attempts: nothing waits for it any more, so that its pod can go.
// If it holds an exclusive device, that device is quarantined: it is not given to anybody until [Executor.Retry] succeeds.
type Leftover struct {
	// Key is unique and stable: sandbox, claim, step and instance.
	Key string `json:"key"`
	// Attachment has only the step.
	Attachment Attachment `json:"attachment"`
	Since      time.Time  `json:"since"`
	// Reason is the last failure, Attempts how many there were.
	Reason   string `json:"reason"`
	Attempts int    `json:"attempts"`
}

// Step is the step that could not be undone.
func (l *Leftover) Step() *StepRecord { return &l.Attachment.Steps[0] }

// Quarantines returns the exclusive device that is held back; nil for a step without one.
func (l *Leftover) Quarantines() *Device {
	if _, owned := ownedDevice(l.Step()); !owned {
		return nil
	}
	return l.Step().Step.Device
}

// leftovers is what the journal has of them.
type leftovers struct {
	mu    sync.Mutex
	byKey map[string]Leftover
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

func (l *leftovers) all() []Leftover {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]Leftover, 0, len(l.byKey))
	for _, key := range sortedKeys(l.byKey) {
		list = append(list, l.byKey[key])
	}
	return list
}

// countFailure is called after each DEL that failed.
func (e *Executor) countFailure(record *StepRecord) {
	record.Failures++
	if record.FailingSince == nil {
		now := e.Clock.Now()
		record.FailingSince = &now
	}
}

// hopeless says whether a step has failed too often or for too long. A second failure is wanted in any case: the time
// may have passed while the driver was away.
func (e *Executor) hopeless(record *StepRecord) bool {
	return record.Failures >= e.GiveUpAttempts ||
		record.Failures > 1 && e.Clock.Since(*record.FailingSince) >= e.GiveUpAfter
}

// leaveOver records that a step can't be undone. The device is held back before its owner is forgotten.
func (e *Executor) leaveOver(attachment *Attachment, record *StepRecord, reason error) error {
	alone := *record
	alone.Step.DependsOn = nil
	only := *attachment
	only.Phase, only.Steps = PhaseDetaching, []StepRecord{alone}
	leftover := Leftover{
		Key:        fmt.Sprintf("%s/%s/%s/%d", attachment.SandboxID, record.Claim.UID, record.Step.Name, record.Step.Instance),
		Attachment: only, Since: *record.FailingSince, Reason: reason.Error(), Attempts: record.Failures,
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
