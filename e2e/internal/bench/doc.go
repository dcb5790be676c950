// Package bench is, for tests inside a virtual machine (package vm), that machine without Kubernetes: its links and PCI
// functions, pods as network namespaces, and what the project's driver has of chains, in the process of the test, where
// it can be killed at any of its calls.
//
// The rule of this package: it knows of devices only what all machines have. What a test expects of Open vSwitch, RDMA
// or a card is in the package of that test.
//
// Importing it locks the main thread to the main goroutine, since a main thread can't end: a pod that a goroutine has
// entered and not left would live as long as the process.
package bench
