// Package install keeps the helper binary on the node, and the directories of the host that are mounted into the
// driver's container, in working order. Both can be removed, replaced or damaged while the driver runs.
//
// The rule of this package: every call compares with what the host has now, and changes only what differs. So repairs
// can be repeated without harm, and a driver that is killed in between leaves nothing that the next call misreads.
package install
