// Package claimspec decides what a claim may ask for.
//
// [Devices] reads what a claim asks of the devices that it was given, [Spec] checks it against a topology, and
// [CheckPod] and [CheckNamespace] check who asks. [CheckWritten] does so before there are devices.
//
// The rule of this package: it is pure, and the only place with this rule. The driver, the controller's webhook and
// "netdra simulate" call it, so that a claim which one of them refuses is refused by the others, in the same words.
package claimspec
