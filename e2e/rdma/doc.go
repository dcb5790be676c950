// Package rdma tests on RDMA devices: of Soft RoCE, on virtual functions of the kernel's igb driver and on other links.
// First those of the laboratory itself, which show what the kernel does that the driver builds on; and, where the
// machine is a node of Kubernetes (TestCluster...), what users get through the API. It has no other code.
//
// The rule of this package: its tests run inside a machine of package vm with RDMA (make rdma-test), which is theirs
// alone, one after the other, each with links and devices that it makes itself. A test is of one mode of network
// namespaces, exclusive or shared, and is skipped in machines with the other.
package rdma
