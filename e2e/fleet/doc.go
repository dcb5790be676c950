// Package fleet has tests of the driver on several nodes of a real local Kubernetes: nodes that reboot, are lost and
// come back, or run another version.
//
// The rule of this package: kernels and the API server are the judges. What the driver says of itself is not asked.
package fleet
