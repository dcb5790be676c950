package nodestate

import (
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
)

// ClaimRecord is the durable record of a prepared claim. It contains everything that is needed to attach and detach the
// claim. The driver stores it in its journal and serves it as part of [Claim].
type ClaimRecord struct {
	Claim cnichain.Claim `json:"claim"`
	// PreparedAt is zero in records from drivers that did not record the time.
	PreparedAt time.Time `json:"preparedAt,omitzero"`
	// Consumers are the pods that the claim was reserved for, directly or through a PodGroup, when it was prepared.
	Consumers []Consumer `json:"consumers"`
	// Shareable is true for a claim that was created by a user or for a PodGroup. Containers get neither environment
	// variables nor metadata for such a claim's interfaces, since these differ between pods. Even a claim that is not
	// shareable may have several users, because a pod can name a claim that was generated for another pod.
	Shareable bool            `json:"shareable,omitempty"`
	Devices   []HeldDevice    `json:"devices"`
	Plans     []cnichain.Plan `json:"plans"`
}

// Consumer is a pod that uses a claim.
type Consumer struct {
	PodUID string `json:"podUID"`
	// Position is the index of the claim in the pod's resourceClaims. It determines the order in which interfaces are
	// numbered.
	Position int `json:"position"`
	// Claims contains the names of all of the pod's claims; these names never change. It is nil in records from earlier
	// drivers.
	Claims []string `json:"claims,omitempty"`
}

// HeldDevice is a device of a prepared claim, with its facts from when the claim was prepared.
type HeldDevice struct {
	Request   string `json:"request"`
	Pool      string `json:"pool"`
	Name      string `json:"name"`
	ShareID   string `json:"shareID,omitempty"`
	Exclusive bool   `json:"exclusive,omitempty"`
	// Bandwidth is the bandwidth, in Mbit/s, that the device consumes on the link of its physical function, or 0 if it
	// consumes none.
	Bandwidth int64            `json:"bandwidth,omitempty"`
	Facts     discovery.Device `json:"facts"`
	// Persona is the persona under which the device was published. It is nil in records from earlier drivers.
	Persona *policy.Persona `json:"persona,omitempty"`
	// Consumed contains the amounts of the device's counters that are allocated to the claim.
	Consumed map[resourceapi.QualifiedName]resource.Quantity `json:"consumed,omitempty"`
}

// Attaches reports whether the driver attaches any of the claim's devices. If it returns false, the devices are
// attached by another component or not at all.
func (r *ClaimRecord) Attaches() bool {
	return slices.ContainsFunc(r.Plans, func(plan cnichain.Plan) bool { return len(plan.Steps) > 0 })
}

// ExternalStep returns the step for a device of the claim that another component attaches. It returns nil for any other
// device.
func (r *ClaimRecord) ExternalStep(held *HeldDevice) *cnichain.PlanStep {
	for i := range r.Plans {
		for j := range r.Plans[i].External {
			step := &r.Plans[i].External[j]
			if d := step.Device; d.Pool == held.Pool && d.Name == held.Name && d.ShareID == held.ShareID &&
				d.Request == held.Request {
				return step
			}
		}
	}
	return nil
}

// Position returns the index of the claim in a pod's resourceClaims, and whether the pod is a known consumer.
func (r *ClaimRecord) Position(podUID string) (int, bool) {
	for _, consumer := range r.Consumers {
		if consumer.PodUID == podUID {
			return consumer.Position, true
		}
	}
	return 0, false
}
