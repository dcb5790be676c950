// Package topology makes the DeviceClasses of a NetworkTopology, one for each root step, and tells its author what is
// wrong with it.
//
// The rule of this package: [Judge], [Compare] and [Status] are pure and say what should be; [Reconciler] is
// the only code that talks to the API server. A topology that isn't accepted has no classes, so that nothing can be
// scheduled to it, and a class of somebody else is never changed.
//
// The path of a topology: [Judge] finds its problems, package deviceclasses computes the wanted classes, [Compare] what
// to do, [Reconciler] does it, and [Status] tells what has come of that.
package topology
