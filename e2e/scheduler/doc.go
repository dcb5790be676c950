// Package scheduler tests how kube-scheduler handles the published devices, with real control planes of several
// versions and no machine: the driver publishes recordings as nodes without a kubelet.
//
// The rule of this package: the policies of a test and the published design decide which devices may be used
// concurrently, never the published slices.
package scheduler
