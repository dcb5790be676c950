package attach

import "github.com/dra-networking/dra-network-driver/cnichain/executor"

// Sweeper checks for changes that the driver is not notified of.
type Sweeper struct {
	Sandboxes *Sandboxes
	// PodHasEnded reports whether, according to the API server, the pod no longer exists, has succeeded or has failed.
	PodHasEnded func(executor.Pod) bool
	// IsNamed reports whether the runtime has a path to a pin's network namespace. It may be nil.
	IsNamed func(pin string) bool

	boxes, unrecorded map[string]bool // suspects
}

// Sweep detaches terminated sandboxes, records missing interfaces in the other sandboxes, and corrects every gate,
// regardless of how its file was removed or changed. It returns an error if gates could not be written.
//
// Sweep handles terminated sandboxes first, so that their interfaces are not reported as missing, and gates last, so
// that they reflect all findings.
func (w *Sweeper) Sweep() error {
	s := w.Sandboxes
	w.boxes = s.collect(w.boxes, w.PodHasEnded)
	s.forgetEnded(w.PodHasEnded)
	if w.IsNamed != nil {
		w.unrecorded = s.collectUnrecorded(w.unrecorded, w.IsNamed)
	}
	s.reportMissing(s.inspect())
	s.confirmAgain() // after missing pins have been restored
	return s.syncAllGates()
}

// collect detaches terminated sandboxes that are already suspects and returns the new suspects. It is necessary because
// containerd sends no events for pods that were started before the current containerd process. A sandbox that is
// missing from the runtime's list may still exist. It is considered terminated if, in two consecutive sweeps, its
// network namespace is missing from the runtime's directory and its pod either has terminated according to the API
// server or has a newer sandbox. The driver cannot wait for Unprepare instead: a pod that succeeded may remain in the
// API server, and other pods that share the claim prevent the kubelet from releasing the claim.
//
// A single sweep is not enough, because the runtime removes the path to a namespace before it reports the stop, and the
// sweep could run in between. By the next sweep, thirty seconds later, the runtime will have reported the stop.
func (s *Sandboxes) collect(suspects map[string]bool, podHasEnded func(executor.Pod) bool) map[string]bool {
	ended := map[string]bool{}
	for _, box := range s.list() {
		now := box.view()
		switch netns := now.netns; {
		case netns == "" || s.Executor.Host.Exists(netns) || !podHasEnded(box.pod) && !now.superseded:
		case suspects[box.id]:
			s.logger(box).Info("The sandbox ended without a report of the runtime; detaching it", "netns", netns)
			s.StopSandbox(box.id)
		default:
			ended[box.id] = true
		}
	}
	return ended
}
