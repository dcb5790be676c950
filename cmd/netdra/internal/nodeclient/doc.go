// Package nodeclient queries the driver of this node, and reads its log of CNI calls: devices, claims, failed cleanups,
// orphaned files and versions.
//
// The rule of this package: only [Client] and the functions that take a directory do I/O. The lists are computed from
// the driver's answers.
//
// The driver's answers have the types of package nodestate. This package converts them to the form that users need: a
// device with its holders ([Devices]), a claim with its pods ([Claims]). Commands for one node, for all nodes, the
// report and doctor use these two, so that they always agree about a state.
package nodeclient
