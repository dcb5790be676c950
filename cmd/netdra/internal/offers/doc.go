// Package offers computes the devices that a machine offers under a set of policies: its facts, its ResourceSlices, the
// reasons why a device is offered or not, and the changes that other policies would cause.
//
// facts + policies ─policy.Resolve─► Decision ─slices.Build─► Result ─► text, JSON or YAML
//
// The rule of this package: it computes the same results as the driver, from the same inputs if the driver is running.
// It changes nothing.
//
// [Inputs] contains the flags that select the machine: this machine, a recording, or the state of this node's driver. A
// [Snapshot] is the result for one set of policies. Each command is a function of one snapshot (facts, slices, explain,
// policies list) or of two (policies test).
package offers
