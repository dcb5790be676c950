// Package policy decides which devices of a node are offered, and how: Facts and DeviceExposurePolicies become a
// Decision. It owns the attribute vocabulary, the names and values by which devices are selected and published, and the
// expression language of selectors.
//
// The rule of this package: it is pure. The same facts and policies give the same decision; what is wrong with a policy
// or a device is data in the decision, with the reasons for every device, and never stops the others.
//
// The way of policies and expressions:
//
//	resolve.go     which policy gives a device its entries, with reasons
//	decision.go    the result
//	persona.go     what a policy says of an entry
//	attributes.go  the vocabulary
//	selector.go    expressions: compiled, checked and evaluated
//	guard.go       what an expression reads that may be absent
//	compare.go     what it compares with what an attribute can't be, with celtypes.go
//	complete.go    guards that expressions of classes get
//	computed.go    attributes that policies compute
package policy
