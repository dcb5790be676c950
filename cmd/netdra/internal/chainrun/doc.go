// Package chainrun runs a NetworkTopology on this machine as the driver does for a pod, and undoes it.
//
// topology + links ─plan─► Plan ─RunOptions.Run─► attached ─► undone and verified
//
// Invariant: every run is recorded in the journal before it changes anything, so that another process
// can undo it. Package cnichain makes all changes to the machine.
//
// A run has the following steps, each of which is recorded in the journal before the next one starts: save the run and
// the state of the machine; create the namespace; run ADD for each step; undo each step; delete the run.
// [UndoOptions.Run] continues from the point at which a killed process stopped. The journal contains at most one run,
// because a second run might need resources that the first one still holds.
package chainrun
