// Package fleet has tests of the driver on several nodes of a real local Kubernetes: nodes that reboot, are lost and
// return, or run another version.
//
// The rule of this package: the kernels and the API server decide. Reports of the driver about itself do not count.
package fleet
