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

// ClaimRecord is the durable record of a prepared claim: everything that attaching and detaching it needs. The driver
// keeps it in its journal and serves it as part of [Claim].
type ClaimRecord struct {
	Claim cnichain.Claim `json:"claim"`
	// PreparedAt is zero in records of drivers that did not record the time.
	PreparedAt time.Time `json:"preparedAt,omitzero"`
	// Consumers are the pods that the claim was reserved for when it was prepared, also as members of a PodGroup.
	Consumers []Consumer `json:"consumers"`
	// Shareable is true for a claim that was created by a user or for a PodGroup. Containers get no variables and no
	// metadata for its interfaces, which differ between pods. It does not restrict the use of the claim: a pod may also
	// name the generated claim of another pod.
	Shareable bool            `json:"shareable,omitempty"`
	Devices   []HeldDevice    `json:"devices"`
	Plans     []cnichain.Plan `json:"plans"`
}

// Consumer is a pod that uses a claim.
type Consumer struct {
	PodUID string `json:"podUID"`
	// Position is the claim's index in the pod's resourceClaims; interfaces are numbered in this order.
	Position int `json:"position"`
	// Claims are the names of all claims of the pod, which do not change; nil in records of earlier drivers.
	Claims []string `json:"claims,omitempty"`
}

// HeldDevice is a device of a prepared claim, with its facts at the time of preparation.
type HeldDevice struct {
	Request   string `json:"request"`
	Pool      string `json:"pool"`
	Name      string `json:"name"`
	ShareID   string `json:"shareID,omitempty"`
	Exclusive bool   `json:"exclusive,omitempty"`
	// Bandwidth is the bandwidth that the device takes from its physical function's link, in Mbit/s; 0 if it takes
	// none.
	Bandwidth int64            `json:"bandwidth,omitempty"`
	Facts     discovery.Device `json:"facts"`
	// Persona is the persona with which the device was published; nil in records of earlier drivers.
	Persona *policy.Persona `json:"persona,omitempty"`
	// Consumed is the amount of the device's counters that was allocated to the claim.
	Consumed map[resourceapi.QualifiedName]resource.Quantity `json:"consumed,omitempty"`
}

// Attaches reports whether the driver attaches devices of the claim. Otherwise another component attaches them, or they
// are not attached at all.
func (r *ClaimRecord) Attaches() bool {
	return slices.ContainsFunc(r.Plans, func(plan cnichain.Plan) bool { return len(plan.Steps) > 0 })
}

// ExternalStep returns the step for which a device of the claim was allocated, if another component attaches the
// device; otherwise nil.
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

// Position returns the claim's index in a pod, and whether the pod is a known consumer.
func (r *ClaimRecord) Position(podUID string) (int, bool) {
	for _, consumer := range r.Consumers {
		if consumer.PodUID == podUID {
			return consumer.Position, true
		}
	}
	return 0, false
}
