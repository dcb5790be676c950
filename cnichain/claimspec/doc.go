// Package claimspec decides what a claim may ask for.
//
// [Devices] reads what a claim asks of the devices that it was given, [Spec] checks it against a topology, and
// [CheckPod] and [CheckNamespace] check who asks.
//
// The rule of this package: it is pure, and the only place with this rule. The driver and "netdra simulate" both call
// it, so that a claim which one of them refuses is refused by the other, in the same words.
package claimspec
