// Package nodeclient queries the driver on this node and reads its log of CNI calls. It provides devices, claims,
// failed cleanups, orphaned files and versions.
//
// The rule of this package: only [Client] and the functions that take a directory do I/O. The lists are computed from
// the driver's answers.
//
// The driver's answers have the types from package nodestate. This package converts them to the form that users need: a
// device with its holders ([Devices]), a claim with its pods ([Claims]). The single-node commands, the commands for all
// nodes, the report and doctor all use these two functions, so that they always report the same state.
package nodeclient
