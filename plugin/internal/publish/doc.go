// Package publish keeps the node's ResourceSlices in sync with the node's devices and the policies.
//
// Invariant: slices are computed from a new scan of the host and from the devices that claims hold.
// If a source cannot be read, the slices stay unchanged. The package does not depend on sandboxes: to find out whether
// a device may be in a pod, it calls functions provided by its owner.
package publish
