// Package scheduler tests how kube-scheduler handles the published devices, using real control planes in several
// Kubernetes versions. No machines are involved: from recordings of machines, the driver publishes devices for Node
// objects without a kubelet.
//
// Invariant: tests derive which devices may be used concurrently from their policies and the published
// design, never from the published slices.
package scheduler
