// Package policy decides which devices on a node are offered, and how: it turns Facts and DeviceExposurePolicies into a
// Decision. It owns the attribute vocabulary, that is, the attribute names and values with which devices are selected
// and published, and the expression language for selectors.
//
// Invariant: it is pure. The same facts and policies always lead to the same decision. Errors in a
// policy or for a device are recorded in the decision, along with a reason for each device. They never affect other
// policies or devices.
//
// Files, in the order that a policy and its expressions pass through them:
//
//	resolve.go     deciding which policy defines a device's entries, with reasons
//	decision.go    the resulting decision
//	persona.go     the entry that a policy defines
//	attributes.go  the vocabulary
//	selector.go    compiling, checking and evaluating expressions
//	guard.go       finding accesses to attributes that may be absent
//	celtypes.go    finding comparisons with literals of a different type
//	complete.go    adding guards to class expressions
//	computed.go    attributes that policies add to devices
package policy
