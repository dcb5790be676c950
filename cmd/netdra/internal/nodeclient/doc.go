// Package nodeclient queries the driver on this node and reads the driver's log of CNI calls. It provides devices,
// claims, failed cleanups, orphaned files and versions.
//
// Invariant: only [Client] and the functions that take a directory do I/O. The lists are computed from
// the driver's answers.
//
// The types of the driver's answers are defined in package nodestate. This package converts them to the form that users
// need: devices with their holders ([Devices]), and claims with their pods ([Claims]). These two functions are used by
// the commands for a single node, the commands for all nodes, the report and doctor, so all of these always report the
// same state.
package nodeclient
