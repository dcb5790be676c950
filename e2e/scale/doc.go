// Package scale measures what a fleet costs the control plane of Kubernetes: a real API server, etcd and scheduler,
// nodes and pods that kwok keeps, and ResourceSlices that the driver's own code publishes of a recorded machine.
//
// The rule of this package: what is judged is counted, such as writes; times and sizes are printed, and only the ratio
// of two runs on the same nodes can be asked for.
package scale
