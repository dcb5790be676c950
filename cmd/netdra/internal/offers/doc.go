// Package offers computes what a machine offers with some policies: its facts, its ResourceSlices, why a device is
// offered or not, and what other policies would change.
//
//	facts + policies ─policy.Resolve─► Decision ─slices.Build─► Result ─► text, JSON or YAML
//
// The rule of this package: it computes as the driver does, with the same inputs where the driver runs. It changes
// nothing.
//
// [Inputs] are the flags, and find the machine: this one by discovery, a recording, or what the driver of this node
// knows. A [Snapshot] is the result for one set of policies. Each command is a function of one snapshot (facts, slices,
// explain, policies list) or of two (policies test).
package offers
