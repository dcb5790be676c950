// Package sriov tests the project on real SR-IOV network cards: discovery and chains of CNI plugins with virtual
// functions of the kernel's igb driver, and traffic between pods; and, where the machine is a node of Kubernetes
// (TestCluster...), what users get through the API and what crashes leave. It has no other code.
//
// The rule of this package: its tests run inside a machine of package vm (make sriov-test, make sriov-inside), which is
// theirs alone, one after the other, each with virtual functions that it makes itself. They look at the kernel and at
// traffic.
package sriov
