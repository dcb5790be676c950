// Package chainrun runs a NetworkTopology on this machine as the driver does for a pod, and undoes it.
//
//	topology + links ─plan─► Plan ─RunOptions.Run─► attached ─► undone and verified
//
// The rule of this package: the run is in the journal before anything changes, so that another process can undo
// what was begun. Package cnichain does everything that changes the machine.
//
// The order of a run, in which each line is in the journal before the next begins: the run with the state of the
// machine; the namespace; each step before its ADD; each undone step; the end, which deletes the run. [UndoOptions.Run]
// begins wherever a killed process has stopped. One run may be in the journal at a time, since a second could need what
// the first still holds.
package chainrun
