// Package webhook tells whoever writes a DeviceExposurePolicy, a NetworkTopology, or a claim with parameters for the
// driver at once what is wrong with it.
//
// The rule of this package: it is a courtesy. It asks the same functions as the conditions and the nodes, refuses only
// what they refuse, and lets pass what it can't judge: it must never be why something else can't be written.
//
// A request goes through limit.go, which bounds what strangers can take, package admission, which decodes it, and
// [Handler]. What claims ask is judged in claims.go. Answers for deletions are in deletion.go: they only warn.
package webhook
