// Package fleet tests the driver on several nodes of a real local Kubernetes cluster: nodes that are rebooted, are lost
// and return, or run another version.
//
// Invariant: results come from the kernels and the API server, never from the driver's own reports.
package fleet
