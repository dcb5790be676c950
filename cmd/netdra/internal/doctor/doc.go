// Package doctor finds faults and risks on a node and suggests a fix for each.
//
// The rule of this package: [Gather] reads everything into one value, and a check is a pure function of that value.
//
// The checks are in checks_*.go, one file per subject. Their data is in [Input], which is filled by gather.go and by
// the files that are named after a data source. [Examine] runs the checks in display order: faults that break
// everything come first, since they often cause the others.
//
// A check returns OK if its subject is healthy or not needed, Unknown with the reason if it cannot run, or findings
// with fixes. A check that cannot read its data must report this.
package doctor
