// Package chainrun runs a NetworkTopology on this machine as the driver does for a pod, and undoes it.
//
// topology + links ─plan─► Plan ─RunOptions.Run─► attached ─► undone and verified
//
// The rule of this package: the run is recorded in the journal before anything changes, so that another process can
// undo it. Package cnichain makes all changes to the machine.
//
// A run proceeds in this order, and each item is recorded in the journal before the next starts: the run with the state
// of the machine; the namespace; each step before its ADD; each undone step; the end, which deletes the run.
// [UndoOptions.Run] continues from the point at which a killed process stopped. The journal contains at most one run,
// since a second run might need resources that the first run still holds.
package chainrun
