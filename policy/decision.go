package policy

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dra-networking/dra-network-driver/discovery"
)

// Decision states, for every device on a node, whether and how the device is offered, and why.
type Decision struct {
	// Devices contains the decisions for all devices in the facts, sorted by name.
	Devices []DeviceDecision
	// Problems lists the problems with the policies, sorted by policy.
	Problems []Problem
}

// DeviceDecision is the decision for one device.
type DeviceDecision struct {
	Device discovery.Device
	// Personas contains the entries under which the device is offered, sorted by suffix. If the slice is empty, the
	// device is hidden.
	Personas []Persona
	// Reasons contains one reason for every policy, sorted by policy.
	Reasons []Reason
}

// Persona is one of the entries under which a device is offered.
type Persona struct {
	// Suffix is appended to the device's name.
	Suffix string
	// Policy is the name of the winning policy.
	Policy string
	// Exclusive is true if a single claim gets the whole device.
	Exclusive bool
	// AllowInUse is true if a claim may take the device even though the node has addresses, routes or rules on it. It
	// is always false for shared personas.
	AllowInUse bool
	// Plugins contains the CNI plugins that may attach the device under this entry, in policy order.
	Plugins []string
	// Capacity contains the counters defined by the policy, sorted by name.
	Capacity []Capacity
	// ConsumePerAllocation maps counters to the minimum amount that each allocation consumes according to the policy.
	// It is empty for exclusive personas.
	ConsumePerAllocation map[string]resource.Quantity
	// ExclusionGroup is the name of a group of shared personas of the device that must not be used concurrently.
	ExclusionGroup string
	// LinkBandwidth defines the amounts of link bandwidth that claims may request. In an exclusive persona, it is the
	// setting from the policy for the virtual function. A shared persona with this field is the device from which
	// claims take the bandwidth: see IsBandwidth.
	LinkBandwidth *resourceapi.CapacityRequestPolicy `json:",omitempty"`
	// Publish contains the names of the discovered attributes that the policy requests; see PublishedOnRequest.
	Publish []string `json:",omitempty"`
	// AdditionalAttributes contains the attributes that the policy adds to the device: fixed attributes, computed
	// attributes and attributes from the policy's table. They are published along with the discovered attributes.
	AdditionalAttributes AttributeMap
	// AttributeSources contains, for every attribute that the policy defines, its source or the reason why it is
	// absent, sorted by name. It is only for display and is not recorded with a claim's persona.
	AttributeSources []AttributeSource `json:"-"`
}

// IsBandwidth reports whether the persona represents link bandwidth: claims take amounts from its only counter, and no
// device is attached. It returns false for a nil persona.
func (p *Persona) IsBandwidth() bool { return p != nil && !p.Exclusive && p.LinkBandwidth != nil }

// AttributeSource is the source of an attribute that a policy defines for a device.
type AttributeSource struct {
	Name resourceapi.QualifiedName
	// Source is the exposure field that defines the attribute, for example attributesByPCIAddress[0000:18:00.0].
	Source string
	// Absent is the reason why the device does not have the attribute; it is empty if the device has the attribute.
	Absent string
}

// Capacity is a counter of a persona.
type Capacity struct {
	// Name is the counter name from the policy, without a domain.
	Name  string
	Value resource.Quantity
	// RequestPolicy may be nil. Its default may come from the policy's consumePerAllocation. In exclusive personas,
	// only bandwidth can have a request policy.
	RequestPolicy *resourceapi.CapacityRequestPolicy
}

// Outcome is the result of one policy for one device.
type Outcome string

// These are the possible outcomes of a policy.
const (
	// Exposes: the policy wins and defines an entry for the device.
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

// Problem is a problem with a policy or a device that an administrator should fix.
type Problem struct {
	// Policy is the name of the policy; it is empty if the problem does not concern a policy.
	Policy string
	// Device is the name of the device; it is empty if the problem does not concern a device.
	Device  string
	Message string
	// Remark is true for a hint to the author of a policy that has no effect on which devices are offered.
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
