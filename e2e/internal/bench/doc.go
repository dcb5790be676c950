// Package bench represents, for tests inside a virtual machine (package vm), that machine without Kubernetes: its links
// and PCI functions, pods as network namespaces, and the part of the project's driver that runs chains. The driver runs
// in the process of the test, where a test can kill it at any call.
//
// The rule of this package: it only relies on devices that all machines have. Expectations of Open vSwitch, RDMA or a
// NIC are in the packages of their tests.
//
// Importing it locks the main thread to the main goroutine, since a main thread can't end: if a goroutine entered a pod
// on the main thread and did not leave it, the pod would live as long as the process.
package bench
