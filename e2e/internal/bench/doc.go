// Package bench represents, for tests inside a virtual machine (package vm), that machine without Kubernetes: its links
// and PCI functions, pods as network namespaces, and the part of the project's driver that runs chains, in the process
// of the test, where it can be killed at any of its calls.
//
// The rule of this package: it only relies on devices that all machines have. Expectations of Open vSwitch, RDMA or a
// NIC are in the packages of their tests.
//
// Importing it locks the main thread to the main goroutine, since a main thread can't end: a pod that a goroutine has
// entered and not left would live as long as the process.
package bench
