// Package claimspec defines which claims are valid.
//
// [Devices] reads a claim's parameters for its allocated devices, [Spec] checks them against a topology, and [CheckPod]
// and [CheckNamespace] check which pods may use the claim. [CheckWritten] checks a claim before it has devices.
//
// Invariant: it is pure, and the only definition of valid claims. The driver, the controller's webhook
// and "netdra simulate" call it, so that all of them reject the same claims with the same message.
package claimspec
