// Package publish keeps the ResourceSlices of the node in line with its devices and the policies.
//
// The rule of this package: slices are computed from a new reading of the host and from the devices of claims. If a
// source cannot be read, nothing changes. The package does not depend on sandboxes: it queries its owner for the pod
// that uses a device.
package publish
