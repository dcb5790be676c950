// Package doctor finds faults and risks of a node, with a remedy for each.
//
// The rule of this package: [Gather] reads everything into one value, and a check is a pure function of that value.
//
// The checks are in checks_*.go, one file for each subject; [Input] describes their data, which gather.go and the files
// named after their source read. [Examine] runs them in the order of display: faults that break everything come first,
// since others often follow from them.
//
// There are three results: healthy, including absent but unneeded parts (OK); not checked, with the reason (Unknown);
// and a finding with a remedy. A check that cannot read its source must not be silent.
package doctor
