// Package exposure tells the author of a DeviceExposurePolicy what is wrong with it.
//
// The rule of this package: [Accepted], [Count] and [Status] are pure and say it; [Reconciler] and [Counter] write it
// into the status and nothing else. The nodes don't wait for it: they judge policies themselves, and what they publish
// names its policy, so that they don't write it.
package exposure
