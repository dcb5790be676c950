// Package policy decides which devices on a node are offered, and how: it turns Facts and DeviceExposurePolicies into a
// Decision. It owns the attribute vocabulary, that is, the names and values by which devices are selected and
// published, and the expression language of selectors.
//
// The rule of this package: it is pure. The same facts and policies lead to the same decision. Errors in a policy or a
// device are recorded in the decision, together with the reasons for every device. They never affect other policies or
// devices.
//
// Files, in the order in which a policy and its expressions are processed:
//
//	resolve.go     which policy gives a device its entries, with reasons
//	decision.go    the result
//	persona.go     the entry that a policy defines
//	attributes.go  the vocabulary
//	selector.go    expressions: compiled, checked and evaluated
//	guard.go       accesses to attributes that may be absent
//	celtypes.go    comparisons with literals of a different type
//	complete.go    guards added to class expressions
//	computed.go    attributes that policies compute
package policy
