package attach

import (
	"cmp"
	"maps"
	"slices"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// States returns the states of all sandboxes, sorted by ID, including ended sandboxes whose pods are waiting for their
// next sandbox.
func (s *Sandboxes) States() []nodestate.Sandbox {
	boxes := s.list()
	states := make([]nodestate.Sandbox, 0, len(boxes))
	for _, box := range boxes {
		now := box.view()
		state := now.state(box, s.Node)
		for _, uid := range state.Claims {
			if record, prepared := s.Claims.Get(uid); prepared {
				state.Interfaces = append(state.Interfaces,
					interfacesOf(&record, now.steps(uid), now.missingOf(uid))...)
			}
		}
		states = append(states, state)
	}
	for _, state := range s.endedStates() {
		isThere := slices.ContainsFunc(boxes, func(box *sandbox) bool { return box.id == state.ID })
		if !isThere { // otherwise the sandbox is being rolled back
			states = append(states, state)
		}
	}
	slices.SortFunc(states, func(a, b nodestate.Sandbox) int { return cmp.Compare(a.ID, b.ID) })
	return states
}

// interfacesOf returns a claim's interfaces in a sandbox with these steps, including missing interfaces. It returns
// none while the sandbox is not ready.
func interfacesOf(record *claims.Record, steps []executor.StepRecord, missing map[int]string) []nodestate.Interface {
	if steps == nil {
		return nil
	}
	var interfaces []nodestate.Interface
	for i := range record.Devices {
		held := &record.Devices[i]
		if held.Persona.IsBandwidth() {
			continue // nothing is attached
		}
		state := nodestate.Interface{
			ClaimUID: record.Claim.UID, Pool: held.Pool, Device: held.Name, Missing: MissingOf(steps, missing,
				record.Claim.UID, held),
		}
		if data := NetworkData(steps, record.Claim.UID, held); data != nil {
			state.Interface, state.MAC, state.IPs = data.InterfaceName, data.HardwareAddress, data.IPs
		}
		for j := range steps {
			if device := steps[j].Step.Device; device != nil && device.Pool == held.Pool && device.Name == held.Name &&
				steps[j].Claim.UID == record.Claim.UID {
				state.DeviceNodes = append(state.DeviceNodes, steps[j].Files()...)
			}
		}
		if verbs := VerbsOf(steps, record.Claim.UID, held); verbs != nil {
			state.RDMA, state.RDMAUnknown = verbs.Devices, verbs.Unknown
		}
		interfaces = append(interfaces, state)
	}
	return interfaces
}

// state returns the sandbox as shown by "netdra claims" and in recordings. The node's name is used in the hint about a
// failure.
func (v view) state(box *sandbox, node string) nodestate.Sandbox {
	state := nodestate.Sandbox{ID: box.id, Pod: box.pod, Claims: slices.AppendSeq([]string{}, maps.Keys(v.claims)),
		State: nodestate.SandboxAttaching, Since: box.since, Pin: v.pin}
	slices.Sort(state.Claims)
	switch {
	case v.phase.isAttached():
		state.State = nodestate.SandboxReady
	case v.phase.isEnding():
		state.State = nodestate.SandboxDetaching
		if !v.endingSince.IsZero() {
			state.Since = v.endingSince
		}
	}
	if v.detachFailure != nil {
		state.DetachFailure = v.detachFailure.Error()
	}
	switch {
	case v.failure != nil:
		state.Failure, state.FailureHint = v.failure.Error(), executor.KernelHint(v.failure, node)
	case v.last != nil && state.State == nodestate.SandboxAttaching:
		state.Failure, state.FailureHint = v.last.Failure, v.last.FailureHint
	}
	return state
}
