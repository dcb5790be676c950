// Package scale measures the cost of a fleet for the control plane of Kubernetes: a real API server, etcd and
// scheduler, nodes and pods of kwok, and ResourceSlices that the driver's own code publishes for a recorded machine.
//
// The rule of this package: checks use only counts, such as the number of writes. Times and sizes are only printed, and
// at most the ratio of two runs on the same nodes is checked.
package scale
