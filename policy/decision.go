package policy

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dra-networking/dra-network-driver/discovery"
)

// Decision contains, for every device of a node, whether and how it is offered, and why.
type Decision struct {
	// Devices contains every device of the facts, sorted by name.
	Devices []DeviceDecision
	// Problems are the errors in policies, sorted by policy.
	Problems []Problem
}

// DeviceDecision is the decision on one device.
type DeviceDecision struct {
	Device discovery.Device
	// Personas are the entries under which the device is offered, sorted by suffix. Without personas, the device is
	// hidden.
	Personas []Persona
	// Reasons contains one reason for every policy, sorted by policy.
	Reasons []Reason
}

// Persona is one device entry of a device.
type Persona struct {
	// Suffix is appended to the name of the device.
	Suffix string
	// Policy is the name of the winning policy.
	Policy string
	// Exclusive is true if one claim takes the whole device.
	Exclusive bool
	// AllowInUse is true if the device may be taken although the node has addresses, routes or rules on it. It is false
	// for shared personas.
	AllowInUse bool
	// Plugins are the CNI plugins that may attach the device under this entry, in the order of the policy.
	Plugins []string
	// Capacity contains the counters of the policy, sorted by name.
	Capacity []Capacity
	// ConsumePerAllocation is the minimum that an allocation consumes, by counter, as the policy defines it. Only
	// shared personas have entries.
	ConsumePerAllocation map[string]resource.Quantity
	// ExclusionGroup links shared personas of the device that must not be used concurrently.
	ExclusionGroup string
	// Publish are the names of discovered attributes that the policy requests; see PublishedOnRequest.
	Publish []string `json:",omitempty"`
	// AdditionalAttributes are the attributes that the policy adds to the device: fixed, computed and from its table.
	// They are published together with the discovered attributes.
	AdditionalAttributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute
	// AttributeSources lists, for every attribute that the policy names, its source or the reason why it is absent,
	// sorted by name. It is for display and not part of the recorded persona of a claim.
	AttributeSources []AttributeSource `json:"-"`
}

// AttributeSource is the source of an attribute that the policy of a device names.
type AttributeSource struct {
	Name resourceapi.QualifiedName
	// Source is the field of the exposure, for example attributesByPCIAddress[0000:18:00.0].
	Source string
	// Absent is the reason why the device lacks the attribute; empty if the device has it.
	Absent string
}

// Capacity is one counter of a persona.
type Capacity struct {
	// Name is the name in the policy, without domain.
	Name  string
	Value resource.Quantity
	// RequestPolicy may be nil. Its default may come from the policy's consumePerAllocation. In exclusive personas,
	// only bandwidth has a request policy.
	RequestPolicy *resourceapi.CapacityRequestPolicy
}

// Outcome is the result of one policy for one device.
type Outcome string

// Outcomes.
const (
	// Exposes: the policy won and gives the device an entry.
	Exposes Outcome = "exposes"
	// Excludes: the policy hides the device.
	Excludes Outcome = "excludes"
	// Lost: the policy matches, but another policy decides.
	Lost Outcome = "lost"
	// NoMatch: the policy's expression is false for the device.
	NoMatch Outcome = "no match"
	// OtherNodes: the policy does not apply to this node.
	OtherNodes Outcome = "other nodes"
	// Failed: the policy's expression cannot be compiled or evaluated. In an exclude policy it hides the device.
	Failed Outcome = "failed"
	// Invalid: the policy exposes nothing because it is not valid.
	Invalid Outcome = "invalid"
)

// Reason is the result of one policy for one device, with an explanation.
type Reason struct {
	Policy  string
	Outcome Outcome
	Message string
}

// String returns the reason as one line.
func (r Reason) String() string {
	if r.Message == "" {
		return fmt.Sprintf("policy %s: %s", r.Policy, r.Outcome)
	}
	return fmt.Sprintf("policy %s: %s: %s", r.Policy, r.Outcome, r.Message)
}

// Problem is a problem that an administrator should fix.
type Problem struct {
	// Policy is the name of the policy; empty if the problem does not concern a policy.
	Policy string
	// Device is the name of the device; empty if the problem does not concern a device.
	Device  string
	Message string
	// Remark is true for a hint to the author of a policy whose devices are offered as requested.
	Remark bool `json:",omitempty"`
}

// String returns the problem as one line.
func (p Problem) String() string {
	s := p.Message
	if p.Device != "" {
		s = fmt.Sprintf("device %s: %s", p.Device, s)
	}
	if p.Policy != "" {
		s = fmt.Sprintf("policy %s: %s", p.Policy, s)
	}
	return s
}
