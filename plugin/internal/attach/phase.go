package attach

import "slices"

// phase is where a sandbox is between its first ADD and its last DEL. Whether RunPodSandbox still waits is no phase: it
// stops waiting in any of them.
//
//	attaching ⇄ opening → ready
//	    ↓          ↓        ↓
//	    └───── detaching ───┘ → gone
type phase int

const (
	// phaseAttaching: chains run, wait for their turn, or for their next try.
	phaseAttaching phase = iota
	// phaseOpening: everything is attached, and the gates are being opened. They open for this phase and the next.
	phaseOpening
	// phaseReady: containers may start.
	phaseReady
	// phaseDetaching: what is attached is being undone, or waits for that. A chain that runs is told to end. There is
	// no way back: a pod gets another sandbox.
	phaseDetaching
	// phaseGone: nothing of it is left, and nobody finds it any more.
	phaseGone
)

// String is for messages of tests.
func (p phase) String() string {
	return [...]string{"attaching", "opening", "ready", "detaching", "gone"}[p]
}

// isAttached reports whether everything is attached, so that gates may be open.
func (p phase) isAttached() bool { return p == phaseOpening || p == phaseReady }

// isEnding reports whether the sandbox is being undone, or was.
func (p phase) isEnding() bool { return p == phaseDetaching || p == phaseGone }

// mayBecome reports whether one phase may follow another.
func (p phase) mayBecome(next phase) bool {
	return slices.Contains(map[phase][]phase{
		phaseAttaching: {phaseOpening, phaseDetaching},
		phaseOpening:   {phaseReady, phaseAttaching, phaseDetaching},
		phaseReady:     {phaseDetaching},
		phaseDetaching: {phaseGone},
	}[p], next)
}

// changePhase goes on to a phase, if it may follow the present one, and reports whether it has. What was attached
// counts only while it is. The caller holds the lock.
//
// A change that is refused is no fault: calls of runtime, kubelet and chains come in any order, and the one that comes
// too late has nothing to do.
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
