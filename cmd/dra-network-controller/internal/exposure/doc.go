// Package exposure reports to the authors of DeviceExposurePolicies which errors their policies contain and how many
// devices are offered.
//
// Invariant: [Accepted], [Count] and [Status] are pure and compute the status; [Reconciler] and
// [Counter] only write it. The nodes do not depend on the status: they evaluate policies themselves. Published devices
// name their policy, so nodes do not need to write to policies.
package exposure
