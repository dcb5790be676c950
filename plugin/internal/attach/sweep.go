package attach

import (
	"context"
	"time"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/telemetry"
)

// gcPeriod is the interval at which the registered sandboxes are compared with the kernel, the runtime and the API
// server.
const gcPeriod = 30 * time.Second

// sweepLimit is the time between two sweeps after which the driver counts as hanging.
const sweepLimit = 5 * time.Minute

// Sweeper periodically checks for changes that no event reports to the driver.
type Sweeper struct {
	Sandboxes *Sandboxes
	// PodHasEnded reports whether the API server no longer has the pod, or reports that it succeeded or failed.
	PodHasEnded func(executor.Pod) bool
	// IsNamed reports whether the runtime has a path for the network namespace of a pin.
	IsNamed func(pin string) bool
	// Repair is called at the beginning of each sweep, before files are written; it may be nil.
	Repair func(context.Context)
	// GatesWritten receives the error if gates could not be written, and nil otherwise; it may be nil.
	GatesWritten func(context.Context, error)
	// Swept is called after each sweep; it may be nil.
	Swept func(context.Context)
	// Heartbeats may be nil.
	Heartbeats *telemetry.Heartbeats

	boxes, unrecorded map[string]bool // suspects
}

// Run sweeps until ctx is done.
func (w *Sweeper) Run(ctx context.Context) error {
	const loop = "sweeps"
	if w.Heartbeats != nil {
		defer w.Heartbeats.End(loop)
	}
	ticker := w.Sandboxes.clock.NewTicker(gcPeriod)
	defer ticker.Stop()
	for {
		if w.Heartbeats != nil {
			w.Heartbeats.Beat(loop, sweepLimit)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			w.Sweep(ctx)
		}
	}
}

// Sweep repairs the driver's installation, detaches terminated sandboxes, records missing interfaces in the other
// sandboxes, and corrects every gate, regardless of how its file was removed or changed.
//
// Terminated sandboxes come first, so that their interfaces are not reported as missing. Gates come last, so that they
// reflect all findings.
func (w *Sweeper) Sweep(ctx context.Context) {
	s := w.Sandboxes
	if w.Repair != nil {
		w.Repair(ctx)
	}
	w.boxes = s.collect(w.boxes, w.PodHasEnded)
	s.forgetEnded(w.PodHasEnded)
	if w.IsNamed != nil {
		w.unrecorded = s.collectUnrecorded(w.unrecorded, w.IsNamed)
	}
	s.reportMissing(s.inspect())
	s.confirmAgain() // after missing pins have been restored
	if err := s.syncAllGates(); w.GatesWritten != nil {
		w.GatesWritten(ctx, err)
	}
	if w.Swept != nil {
		w.Swept(ctx)
	}
}

// collect detaches terminated sandboxes that are already suspects, and returns those that are new: containerd sends no
// events for pods that are older than its process. A missing entry in a list proves nothing. The criteria are that the
// network namespace is gone from the runtime's directory, and that the pod has terminated according to the API server
// or has a newer sandbox, in two consecutive sweeps. The driver cannot wait for Unprepare instead: a pod that succeeded
// may stay in the API server, and other pods that share the claim keep the kubelet from releasing it.
//
// A single check could fall between two steps of the runtime, which removes the path of a namespace before it reports
// the stop. Thirty seconds later, it has reported the stop.
func (s *Sandboxes) collect(suspects map[string]bool, podHasEnded func(executor.Pod) bool) map[string]bool {
	ended := map[string]bool{}
	for _, box := range s.list() {
		netns := box.namespace()
		switch {
		case netns == "" || s.executor.Host.Exists(netns) || !podHasEnded(box.pod) && !box.isSuperseded():
		case suspects[box.id]:
			s.logger(box).Info("The sandbox ended without a report of the runtime; detaching it", "netns", netns)
			s.StopSandbox(box.id)
		default:
			ended[box.id] = true
		}
	}
	return ended
}
