// Package offers computes what a machine offers under a set of policies: its facts, its ResourceSlices, the reasons why
// a device is or is not offered, and the changes that a different set of policies would cause.
//
// facts + policies ─policy.Resolve─► Decision ─slices.Build─► Result ─► text, JSON or YAML
//
// Invariant: it computes the same results as the driver and, if the driver is running, from the same
// inputs. It changes nothing.
//
// [Inputs] contains the flags that select the machine: this machine, a recording, or the node whose driver is queried.
// A [Snapshot] is the result for one set of policies. Each command is a function of one snapshot (facts, slices,
// explain, policies list) or of two snapshots (policies test).
package offers
