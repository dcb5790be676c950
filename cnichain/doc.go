// Package cnichain turns a NetworkTopology, a DAG of CNI plugins, into a plan for one claim, and runs plans against a
// pod's network namespace as a transaction: either every step is there and verified, or nothing is left.
//
// The rule of this package: [Compile] and [Validate] are pure and report every problem at once; [Executor] is the only
// code that runs CNI plugins, and it writes to the journal before and after every side effect, so that a crash at any
// instruction can be undone from what the journal says. No Go code here knows any particular plugin: what a plugin
// accepts and makes is data, in [Schemas].
package cnichain
