package nodeclient

import (
	"cmp"
	"slices"
	"time"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// States of a claim in a pod.
const (
	// Prepared claims wait for their pod or for its sandbox.
	Prepared  = "prepared"
	Attaching = "attaching"
	// Failed claims could not be attached; the driver or the kubelet retries.
	Failed   = "failed"
	Attached = "attached"
	// Lost claims were attached, but one of their interfaces is no longer in the pod.
	Lost      = "lost"
	Detaching = "detaching"
	// Reserved claims have devices that the pod network attaches.
	Reserved = "reserved"
	// Unused claims no longer have a pod on the node.
	Unused = "unused"
)

// Claim is a prepared claim.
type Claim struct {
	Namespace  string   `json:"namespace"`
	Name       string   `json:"name"`
	UID        string   `json:"uid"`
	Topologies []string `json:"topologies"`
	Devices    []string `json:"devices"`
	// PreparedAt is zero if it is unknown.
	PreparedAt time.Time `json:"preparedAt,omitzero"`
	// State is the worst state of all Pods. If there are no pods, it is the state of the claim itself.
	State string `json:"state"`
	Pods  []Pod  `json:"pods,omitempty"`
}

// Pod is a pod sandbox that uses the claim.
type Pod struct {
	Name       string                `json:"name"` // namespace/name
	Sandbox    string                `json:"sandbox"`
	State      string                `json:"state"`
	Since      time.Time             `json:"since"`
	Interfaces []nodestate.Interface `json:"interfaces,omitempty"`
	Error      string                `json:"error,omitempty"`
}

// Claims returns the prepared claims sorted by namespace and name, followed by the claims that the driver refused to
// prepare. The result is never nil, so that JSON contains a list.
func Claims(answers *nodestate.Answers) []Claim {
	claims := make([]Claim, 0, len(answers.Claims))
	for i := range answers.Claims {
		claims = append(claims, claim(&answers.Claims[i], answers.Sandboxes))
	}
	slices.SortFunc(claims, func(a, b Claim) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return append(claims, refusedClaims(answers.State.Refused)...)
}

// claim converts a claim. Its state is the worst state of its pods, because a claim that several pods share may be
// attached to one pod and fail for another.
func claim(record *nodestate.Claim, sandboxes []nodestate.Sandbox) Claim {
	c := Claim{
		Namespace: record.Claim.Namespace, Name: record.Claim.Name, UID: record.Claim.UID,
		PreparedAt: record.PreparedAt,
		Topologies: []string{}, Devices: []string{}, State: Prepared,
	}
	for _, plan := range record.Plans {
		c.Topologies = append(c.Topologies, plan.Topology)
	}
	for _, device := range record.Devices {
		c.Devices = append(c.Devices, device.Name)
	}
	switch {
	case record.Unused:
		c.State = Unused
	case slices.ContainsFunc(record.Plans, func(p cnichain.Plan) bool { return len(p.External) > 0 }) &&
		!record.Attaches():
		c.State = Reserved
	}
	for _, sandbox := range record.Sandboxes(sandboxes) {
		pod := podOf(&sandbox, record.Claim.UID)
		if len(c.Pods) == 0 || severity(pod.State) > severity(c.State) {
			c.State = pod.State
		}
		c.Pods = append(c.Pods, pod)
	}
	return c
}

// podOf returns the state of a claim in a sandbox. Failure stays set while a failed sandbox is rolled back or retried.
// In a ready sandbox, it is outdated.
func podOf(sandbox *nodestate.Sandbox, claimUID string) Pod {
	pod := Pod{Name: sandbox.Pod.String(), Sandbox: sandbox.ID, Since: sandbox.Since, Error: sandbox.Failures()}
	switch {
	case sandbox.State == "ready":
		pod.State, pod.Error = Attached, ""
	case sandbox.State == "detaching":
		pod.State = Detaching
	case sandbox.Failure != "":
		pod.State = Failed
	default:
		pod.State = Attaching
	}
	for _, link := range sandbox.Interfaces {
		if link.ClaimUID == claimUID {
			pod.Interfaces = append(pod.Interfaces, link)
			if link.Missing != "" && pod.State == Attached {
				pod.State, pod.Error = Lost, sandbox.MissingText(link.Missing)
			}
		}
	}
	return pod
}

// severity returns the rank of a pod's state, from best to worst. States that pods cannot have, such as Prepared, rank
// below all others (-1).
func severity(state string) int {
	return slices.Index([]string{Attached, Detaching, Attaching, Lost, Failed}, state)
}
