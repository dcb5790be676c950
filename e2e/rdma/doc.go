// Package rdma tests RDMA devices: of Soft RoCE, on virtual functions of the kernel's igb driver and on other links.
// The tests of the lab show the behavior of the kernel that the driver relies on. If the machine is a node of
// Kubernetes (TestCluster...), further tests check the API from the user's perspective. The package contains only
// tests.
//
// The rule of this package: its tests run inside a machine of package vm with RDMA (make rdma-test), without other
// users, one after another, each with links and devices that it creates. Each test is for one mode of network
// namespaces, exclusive or shared, and is skipped in machines with the other.
package rdma
