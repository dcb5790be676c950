package attach

import (
	"maps"
	"slices"
	"time"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// endedFor is how long the failure of a pod's last sandbox is kept. The kubelet creates the next sandbox after 10 to 15
// s (its backOffPeriod, with jitter), so a pod without events for longer than that is no longer waiting.
const endedFor = 2 * time.Minute

// ended maps pod UIDs to the sandboxes that the runtime removes after a failed RunPodSandbox. Until the kubelet creates
// another sandbox, this is the only record of why the pod is waiting. The map is guarded by the lock of Sandboxes.
type ended map[string]nodestate.Sandbox

// noteEnded records a sandbox whose RunPodSandbox call has failed, unless the pod already has another sandbox.
func (s *Sandboxes) noteEnded(id string, pod executor.Pod, records []claims.Record, failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.byID {
		if other.pod.UID == pod.UID && other.id != id && !other.view().superseded {
			return
		}
	}
	now := s.Clock.Now()
	maps.DeleteFunc(s.ended, func(_ string, box nodestate.Sandbox) bool { return now.Sub(box.Since) >= endedFor })
	pod.Annotations = nil // there may be any number of annotations
	s.ended[pod.UID] = nodestate.Sandbox{ID: id, Pod: pod, Claims: claimUIDs(records), State: nodestate.SandboxEnded,
		Since: now, Failure: failure.Error(), FailureHint: executor.KernelHint(failure, s.Node)}
}

// forgetEnded drops the records of pods that have terminated according to the API server: they are no longer waiting.
// Their claims may continue to exist if other pods use them.
func (s *Sandboxes) forgetEnded(podHasEnded func(executor.Pod) bool) {
	s.mu.Lock()
	known := maps.Clone(s.ended)
	s.mu.Unlock()
	maps.DeleteFunc(known, func(_ string, box nodestate.Sandbox) bool { return !podHasEnded(box.Pod) })
	s.mu.Lock()
	defer s.mu.Unlock()
	for podUID := range known {
		delete(s.ended, podUID)
	}
}

// endedStates returns, in no particular order, the ended sandboxes of pods that are waiting for their next sandbox,
// each with its claims that are still prepared.
func (s *Sandboxes) endedStates() []nodestate.Sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	var states []nodestate.Sandbox
	for _, state := range s.ended {
		state.Claims = slices.DeleteFunc(slices.Clone(state.Claims), func(uid string) bool {
			_, held := s.Claims.Get(uid)
			return !held
		})
		if len(state.Claims) > 0 && s.Clock.Since(state.Since) < endedFor {
			states = append(states, state)
		}
	}
	return states
}
