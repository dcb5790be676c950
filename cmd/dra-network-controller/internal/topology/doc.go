// Package topology creates the DeviceClasses for a NetworkTopology, one for each root step, and reports errors to its
// author.
//
// The rule of this package: [Validate], [Compare] and [Status] are pure and compute the wanted state; only [Reconciler]
// accesses the API server. A topology that is not accepted has no classes, so that nothing can be scheduled to it.
// Classes of other owners are never changed.
//
// A topology is processed as follows: [Validate] finds its problems, package deviceclasses computes the wanted classes,
// [Compare] computes the changes, [Reconciler] makes them, and [Status] describes the result.
package topology
