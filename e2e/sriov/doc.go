// Package sriov tests the project with real SR-IOV NICs: discovery and CNI plugin chains with virtual functions that
// use the kernel's igb driver, and traffic between pods. If the machine is a Kubernetes node (TestCluster...),
// additional tests cover the API from the user's perspective and recovery from crashes. The package contains only
// tests.
//
// Invariant: its tests run one after the other inside a machine booted by package vm (make sriov-test,
// make sriov-inside) that has no other users. Each test creates the virtual functions that it uses. The tests check the
// state of the kernel and traffic.
package sriov
