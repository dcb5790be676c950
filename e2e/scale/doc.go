// Package scale measures how much load a fleet of nodes puts on the Kubernetes control plane. It uses a real API
// server, etcd and scheduler, nodes and pods that are simulated by kwok, and ResourceSlices that the driver's own code
// publishes for a recorded machine.
//
// Invariant: checks use only counts, such as the number of writes. Times and sizes are printed but not
// checked, except that checks may use the ratio between two runs on the same nodes.
package scale
