// Package bench is for tests that run inside a virtual machine (package vm) without Kubernetes. It provides access to
// the machine's links and PCI functions, network namespaces that stand in for pods, and the part of the driver that
// runs chains. The driver runs in the test process, where a test can kill it at any call.
//
// Invariant: it relies only on devices that every machine has. Expectations about Open vSwitch, RDMA or
// a specific NIC belong in the packages with the respective tests.
//
// Importing the package locks the main goroutine to the main thread. The reason is that the main thread cannot
// terminate: if another goroutine entered a pod on the main thread and did not leave it, the pod's namespace would
// exist until the process exits.
package bench
