// Package scale measures the cost of a fleet for the Kubernetes control plane. It uses a real API server, etcd and
// scheduler, nodes and pods simulated by kwok, and ResourceSlices that the driver's own code publishes for a recorded
// machine.
//
// The rule of this package: checks only use counts, such as the number of writes. Times and sizes are only printed,
// except that checks may use the ratio of two runs on the same nodes.
package scale
