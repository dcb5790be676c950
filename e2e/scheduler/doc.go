// Package scheduler tests how kube-scheduler handles the published devices, with real control planes of several
// versions. There are no machines: the driver publishes recorded machines as nodes without a kubelet.
//
// The rule of this package: the policies in a test and the published design, never the published slices, determine
// which devices may be used concurrently.
package scheduler
