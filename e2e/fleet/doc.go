// Package fleet tests the driver on several nodes of a real local Kubernetes cluster: nodes that reboot, are lost and
// return, or run another version.
//
// The rule of this package: results come from the kernels and the API server. The driver's own reports do not count.
package fleet
