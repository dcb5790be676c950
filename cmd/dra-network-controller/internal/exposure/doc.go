// Package exposure tells the author of a DeviceExposurePolicy what is wrong with it.
//
// The rule of this package: [Accepted] is pure and says it; [Reconciler] writes it into the status and nothing
// else. The nodes don't wait for it: they judge policies themselves.
package exposure
