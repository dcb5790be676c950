package attach

import "slices"

// phase is the state of a sandbox between its first ADD and its last DEL. The phase does not depend on whether
// RunPodSandbox is still waiting: RunPodSandbox may stop waiting in any phase.
//
//	attaching ⇄ opening → ready
//	    ↓          ↓        ↓
//	    └───── detaching ───┘ → gone
type phase int

const (
	// phaseAttaching: chains are running, or are waiting for their turn or for the next attempt.
	phaseAttaching phase = iota
	// phaseOpening: everything is attached, and the gates are being opened. Gates may be open only in this phase and
	// the next.
	phaseOpening
	// phaseReady: containers may start.
	phaseReady
	// phaseDetaching: the attachment is being rolled back, or is waiting to be rolled back. A running chain is
	// canceled. The sandbox is never attached again: the pod gets another sandbox.
	phaseDetaching
	// phaseGone: everything is rolled back, and the sandbox is no longer registered.
	phaseGone
)

// String returns the name of the phase, for test messages.
func (p phase) String() string {
	return [...]string{"attaching", "opening", "ready", "detaching", "gone"}[p]
}

// isAttached reports whether everything is attached, in which case gates may be open.
func (p phase) isAttached() bool { return p == phaseOpening || p == phaseReady }

func (p phase) isEnding() bool { return p == phaseDetaching || p == phaseGone }

func (p phase) mayBecome(next phase) bool {
	return slices.Contains(map[phase][]phase{
		phaseAttaching: {phaseOpening, phaseDetaching},
		phaseOpening:   {phaseReady, phaseAttaching, phaseDetaching},
		phaseReady:     {phaseDetaching},
		phaseDetaching: {phaseGone},
	}[p], next)
}

// changePhase changes to the phase next if it may follow the current phase, and reports whether it did. Outside the
// attached phases, the sandbox has no attached steps. The caller must hold the lock.
//
// It is not an error if a change is rejected: calls from the runtime, the kubelet and chains arrive in any order, and a
// late call has nothing left to do.
func (b *sandbox) changePhase(next phase) bool {
	if !b.phase.mayBecome(next) {
		return false
	}
	b.phase = next
	if !next.isAttached() {
		b.attached, b.missing = nil, nil
	}
	return true
}
