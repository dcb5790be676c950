package policy

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dra-networking/dra-network-driver/discovery"
)

// Decision states, for every device on a node, whether, how and why the device is offered.
type Decision struct {
	// Devices contains every device in the facts, sorted by name.
	Devices []DeviceDecision
	// Problems contains the errors in policies, sorted by policy.
	Problems []Problem
}

// DeviceDecision is the decision on one device.
type DeviceDecision struct {
	Device discovery.Device
	// Personas contains the entries under which the device is offered, sorted by suffix. If it is empty, the device is
	// hidden.
	Personas []Persona
	// Reasons contains one reason for every policy, sorted by policy.
	Reasons []Reason
}

// Persona is one of the entries under which a device is offered.
type Persona struct {
	// Suffix is appended to the name of the device.
	Suffix string
	// Policy is the name of the winning policy.
	Policy string
	// Exclusive is true if a claim takes the whole device.
	Exclusive bool
	// AllowInUse is true if a claim may take the device even though the node has addresses, routes or rules on it. It
	// is false for shared personas.
	AllowInUse bool
	// Plugins contains the CNI plugins that may attach the device under this entry, in the same order as in the policy.
	Plugins []string
	// Capacity contains the counters that the policy defines, sorted by name.
	Capacity []Capacity
	// ConsumePerAllocation contains, by counter, the minimum that an allocation consumes according to the policy. It is
	// empty for exclusive personas.
	ConsumePerAllocation map[string]resource.Quantity
	// ExclusionGroup is the name of a group of the device's shared personas, which must not be used concurrently.
	ExclusionGroup string
	// LinkBandwidth contains the amounts of link bandwidth that claims may choose. In an exclusive persona, it is the
	// setting from a virtual function's policy. The shared persona that has this field is the device from which claims
	// take the bandwidth: see IsBandwidth.
	LinkBandwidth *resourceapi.CapacityRequestPolicy `json:",omitempty"`
	// Publish contains the names of discovered attributes that the policy requests; see PublishedOnRequest.
	Publish []string `json:",omitempty"`
	// AdditionalAttributes contains the attributes that the policy adds to the device: fixed attributes, computed
	// attributes and attributes from its table. They are published along with the discovered attributes.
	AdditionalAttributes AttributeMap
	// AttributeSources contains, for every attribute that the policy defines, its source or the reason why it is
	// absent, sorted by name. It is only for display and not part of a claim's recorded persona.
	AttributeSources []AttributeSource `json:"-"`
}

// IsBandwidth reports whether the persona represents link bandwidth: claims take amounts of its only counter, and
// nothing is attached. It returns false for a nil persona.
func (p *Persona) IsBandwidth() bool { return p != nil && !p.Exclusive && p.LinkBandwidth != nil }

// AttributeSource is the source of an attribute that a policy defines for a device.
type AttributeSource struct {
	Name resourceapi.QualifiedName
	// Source is the field in the exposure, for example attributesByPCIAddress[0000:18:00.0].
	Source string
	// Absent is the reason why the device lacks the attribute; empty if the device has it.
	Absent string
}

// Capacity is a counter of a persona.
type Capacity struct {
	// Name is the name in the policy, without a domain.
	Name  string
	Value resource.Quantity
	// RequestPolicy may be nil. Its default may come from the policy's consumePerAllocation. In exclusive personas,
	// only bandwidth can have a request policy.
	RequestPolicy *resourceapi.CapacityRequestPolicy
}

// Outcome is the result of one policy for one device.
type Outcome string

// The outcomes.
const (
	// Exposes: the policy wins and gives the device an entry.
	Exposes Outcome = "exposes"
	// Excludes: the policy hides the device.
	Excludes Outcome = "excludes"
	// Lost: the policy matches, but another policy takes precedence.
	Lost Outcome = "lost"
	// NoMatch: the policy's expression is false for the device.
	NoMatch Outcome = "no match"
	// OtherNodes: the policy does not apply to this node.
	OtherNodes Outcome = "other nodes"
	// Failed: the policy's expression cannot be compiled or evaluated. If it is an exclude policy, it hides the device.
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

// String returns the reason on one line.
func (r Reason) String() string {
	if r.Message == "" {
		return fmt.Sprintf("policy %s: %s", r.Policy, r.Outcome)
	}
	return fmt.Sprintf("policy %s: %s: %s", r.Policy, r.Outcome, r.Message)
}

// Problem is a problem that an administrator should fix.
type Problem struct {
	// Policy is the name of the policy, or empty if the problem does not concern a policy.
	Policy string
	// Device is the name of the device, or empty if the problem does not concern a device.
	Device  string
	Message string
	// Remark is true for a hint to the author of a policy that does not affect which devices are offered.
	Remark bool `json:",omitempty"`
}

// String returns the problem on one line.
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
