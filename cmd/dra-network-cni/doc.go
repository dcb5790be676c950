// Command dra-network-cni contains the programs that the driver installs on the host, in one small binary. The name of
// the link or copy selects the program; if that name does not match a program, the first argument selects it. --version
// prints the build.
//
//   - netdev: a CNI plugin that moves a network device from the host into a pod
//   - gate: an OCI hook that rejects containers whose claim is not attached to their network namespace
//
// The programs share a binary because most of its size is the Go runtime. The binary is separate from the driver's
// because a hook runs for every container with a claim, and starts in 3 ms instead of 23 ms
// (docs/adr/0020-gates-name-namespaces.md).
package main
