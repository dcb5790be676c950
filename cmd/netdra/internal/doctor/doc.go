// Package doctor finds faults and risks on a node and suggests a fix for each.
//
// Invariant: [Gather] reads everything into one value, and a check is a pure function of that value.
//
// The checks are in checks_*.go, with one file per subject. Their data is in [Input], which is filled in by gather.go
// and by files named after a data source. [Examine] runs the checks in display order: faults that break everything come
// first, because they often cause the others.
//
// If its subject is healthy or not needed, a check returns OK. Otherwise, it returns findings with suggested fixes. If
// it cannot run, it returns Unknown with the reason. A check that cannot read its data must report this.
package doctor
