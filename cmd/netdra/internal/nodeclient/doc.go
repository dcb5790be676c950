// Package nodeclient asks the driver of this node, and reads its log of CNI calls: devices, claims, failed cleanups,
// orphaned files and versions.
//
// The rule of this package: only [Client] and the functions that take a directory do I/O. The lists are computed from
// what the driver answered.
package nodeclient
