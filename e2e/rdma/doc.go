// Package rdma tests Soft RoCE RDMA devices on virtual functions that use the kernel's igb driver, and on other links.
// The tests in lab_*_test.go verify the kernel behavior that the driver relies on. If the machine is a Kubernetes node
// (TestCluster...), additional tests check the API from the user's perspective. The package contains only tests.
//
// Invariant: its tests run one after the other inside an RDMA machine booted by package vm (make
// rdma-test) that has no other users. Each test creates the links and devices that it uses. A test that is for only one
// RDMA mode, exclusive or shared, is skipped on machines in the other mode.
package rdma
