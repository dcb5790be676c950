// Package offers computes what a machine offers with some policies: its facts, its ResourceSlices, why a device is
// offered or not, and what other policies would change.
//
//	facts + policies ─policy.Resolve─► Decision ─slices.Build─► Result ─► text, JSON or YAML
//
// The rule of this package: it computes as the driver does, with the same inputs where the driver runs. It changes
// nothing.
package offers
