// Package publish keeps the node's ResourceSlices in line with its devices and the policies.
//
// The rule of this package: slices are computed from a new scan of the host and from the devices that claims hold.
// If a source cannot be read, the slices stay unchanged. The package does not depend on sandboxes: it calls functions
// that its owner provides to find out whether a device may be in a pod.
package publish
