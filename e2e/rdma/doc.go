// Package rdma tests RDMA devices of Soft RoCE on virtual functions of the kernel's igb driver and on other links. The
// tests in lab_*_test.go verify the kernel behavior that the driver relies on. If the machine is a Kubernetes node
// (TestCluster...), further tests check the API from the user's perspective. The package contains only tests.
//
// The rule of this package: its tests run one after the other inside a machine of package vm with RDMA (make rdma-test)
// that has no other users. Each test creates the links and devices that it uses. Each test is for one RDMA mode,
// exclusive or shared, and is skipped on machines in the other mode.
package rdma
