// Package exposure reports errors in DeviceExposurePolicies, and the devices that they offer, to their authors.
//
// The rule of this package: [Accepted], [Count] and [Status] are pure and compute the status; [Reconciler] and
// [Counter] only write it. The nodes do not depend on it: they evaluate policies themselves. Published devices name
// their policy, so nodes do not write to policies.
package exposure
