// Package bench is for tests inside a virtual machine (package vm) without Kubernetes. It provides the machine's links
// and PCI functions, network namespaces as pods, and the part of the driver that runs chains. The driver
// runs in the test process, where a test can kill it at any call.
//
// The rule of this package: it only relies on devices that all machines have. Expectations about Open vSwitch, RDMA or
// a NIC belong in the packages with the respective tests.
//
// Importing the package locks the main thread to the main goroutine, since the main thread cannot terminate: if a
// goroutine entered a pod on the main thread and did not leave it, the pod's namespace would exist until the process
// exits.
package bench
