// Package doctor says what is wrong or risky on a node, and what to do about it.
//
// The rule of this package: [Gather] reads everything into one value, and a check is a pure function of that value.
//
// The checks are in checks_*.go, one file for each subject; what they need is described in [Input], and read by
// gather.go and the files that are named after their source. [Examine] runs them in the order in which they are shown:
// what keeps everything from working comes first, as the rest often follows from it.
//
// Three outcomes are kept apart: healthy, also since something is absent that nobody needs (OK); not looked at, with
// the reason (Unknown); and a finding with what to do. A check that cannot read its source must not be silent.
package doctor
