// Package chainrun runs a NetworkTopology on this machine as the driver does for a pod, and undoes it.
//
//	topology + links ─plan─► Plan ─RunOptions.Run─► attached ─► undone and verified
//
// The rule of this package: the run is in the journal before anything changes, so that another process can undo
// what was begun. Package cnichain does everything that changes the machine.
package chainrun
