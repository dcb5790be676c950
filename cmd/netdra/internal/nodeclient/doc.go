// Package nodeclient asks the driver of this node, and reads its log of CNI calls: devices, claims, failed cleanups,
// orphaned files and versions.
//
// The rule of this package: only [Client] and the functions that take a directory do I/O. The lists are computed from
// what the driver answered.
//
// Answers of the driver are those of package nodestate. This package makes of them what users ask for: a device with
// its holders ([Devices]), a claim with its pods ([Claims]). Commands for one node, for all nodes, the report and
// doctor use these two, so that they never disagree about a state.
package nodeclient
