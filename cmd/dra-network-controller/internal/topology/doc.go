// Package topology creates the DeviceClasses for a NetworkTopology, one for each root step, and reports errors to the
// topology's author.
//
// Invariant: [Validate], [Compare] and [Status] are pure and compute the desired state; only
// [Reconciler] accesses the API server. A topology that is not accepted has no classes, so no pod that uses it can be
// scheduled. Classes with other owners are never changed.
//
// A topology is processed as follows: [Validate] finds its problems, package deviceclasses computes the desired
// classes, [Compare] computes the changes, [Reconciler] applies them, and [Status] describes the result.
package topology
