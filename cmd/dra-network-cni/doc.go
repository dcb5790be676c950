// Command dra-network-cni bundles the programs that the driver installs on the host into one small binary. The name
// under which the binary is called selects the program; if that name does not match any program, the first argument
// selects it. --version prints the build information.
//
//   - netdev: a CNI plugin that moves a network device from the host into a pod
//   - gate: an OCI hook that rejects containers whose claim is not attached to their network namespace
//
// The programs share a binary because most of its size is the Go runtime. The driver has a binary of its own because a
// hook runs for every container with a claim, and the smaller binary starts in 3 ms instead of 23 ms
// (docs/adr/0020-gates-name-namespaces.md).
package main
