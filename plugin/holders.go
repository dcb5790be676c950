package plugin

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

// claimState is what the socket says of a prepared claim.
type claimState struct {
	ClaimRecord
	// Forsaken says that no pod of the node uses the claim any more: kubelet is about to release it, or has forgotten it.
	Forsaken bool `json:"forsaken,omitempty"`
}

// sandboxState is what the socket says of a pod sandbox.
type sandboxState struct {
	ID     string       `json:"id"`
	Pod    executor.Pod `json:"pod"`
	Claims []string     `json:"claims"` // UIDs
	State  string       `json:"state"`  // attaching, ready or detaching
	Since  time.Time    `json:"since"`  // when attaching began
	// Pin is the path at which its network namespace is kept.
	Pin string `json:"pin"`
	// Interfaces are those of a sandbox that is ready.
	Interfaces []interfaceState `json:"interfaces,omitempty"`
	// Failure is why the last attempt to attach has failed.
	Failure string `json:"failure,omitempty"`
}

// interfaceState is the final interface, in the pod, of a device of a claim; its names are those of the claim's status.
type interfaceState struct {
	ClaimUID    string   `json:"claimUID"`
	Pool        string   `json:"pool"`
	Device      string   `json:"device"`
	Interface   string   `json:"interface,omitempty"`
	MAC         string   `json:"mac,omitempty"`
	IPs         []string `json:"ips,omitempty"`
	DeviceNodes []string `json:"deviceNodes,omitempty"`
	// Missing is the first interface of the device's chain that was attached and is not in the pod any more.
	Missing string `json:"missing,omitempty"`
}

// claimStates are sorted by UID.
func (d *Driver) claimStates() []claimState {
	records := d.claims.all()
	states := make([]claimState, 0, len(records))
	pods, known := d.cluster.podUIDs()
	for i := range records {
		states = append(states, claimState{ClaimRecord: records[i], Forsaken: known && d.forsaken(&records[i], pods)})
	}
	return states
}

func (d *Driver) forsaken(record *ClaimRecord, pods sets.Set[string]) bool {
	for _, consumer := range record.Consumers {
		if pods.Has(consumer.PodUID) {
			return false
		}
	}
	return !slices.ContainsFunc(d.sandboxes.list(), func(box *sandbox) bool { return box.uses(record.Claim.UID) })
}

// sandboxStates are sorted by ID.
func (d *Driver) sandboxStates() []sandboxState {
	boxes := d.sandboxes.list()
	states := make([]sandboxState, 0, len(boxes))
	for _, box := range boxes {
		state := box.state()
		for _, uid := range state.Claims {
			if record, prepared := d.claims.get(uid); prepared {
				state.Interfaces = append(state.Interfaces, interfacesOf(&record, box.steps(uid), box.missingOf(uid))...)
			}
		}
		states = append(states, state)
	}
	return states
}

// interfacesOf are those that a claim has in a sandbox with these steps, of which some interfaces may be missing; none while
// it is not ready.
func interfacesOf(record *ClaimRecord, steps []executor.StepRecord, missing map[int]string) []interfaceState {
	if steps == nil {
		return nil
	}
	var interfaces []interfaceState
	for i := range record.Devices {
		held := &record.Devices[i]
		state := interfaceState{
			ClaimUID: record.Claim.UID, Pool: held.Pool, Device: held.Name, Missing: missingOf(steps, missing, record.Claim.UID, held),
		}
		if data := networkData(steps, record.Claim.UID, held); data != nil {
			state.Interface, state.MAC, state.IPs = data.InterfaceName, data.HardwareAddress, data.IPs
		}
		for j := range steps {
			if device := steps[j].Step.Device; device != nil && device.Pool == held.Pool && device.Name == held.Name && steps[j].Claim.UID == record.Claim.UID {
				state.DeviceNodes = append(state.DeviceNodes, steps[j].DeviceNodes...)
			}
		}
		interfaces = append(interfaces, state)
	}
	return interfaces
}

func (b *sandbox) state() sandboxState {
	b.mu.Lock()
	defer b.mu.Unlock()
	state := sandboxState{ID: b.id, Pod: b.pod, Claims: sortedKeys(b.claims), State: "attaching", Since: b.since, Pin: b.pin}
	switch {
	case b.ready:
		state.State = "ready"
	case b.stopped:
		state.State = "detaching"
	}
	if b.failure != nil {
		state.Failure = b.failure.Error()
	}
	return state
}
