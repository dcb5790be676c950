// Command dra-network-cni contains the programs that the driver installs on the host, in one small binary. The name of
// the link or copy selects the program; if it names no program, the first argument does. --version prints the build.
//
// netdev a CNI plugin that moves a network device from the host into a pod gate an OCI hook that rejects containers
// whose claim is not attached to their network namespace
//
// It is a single binary because most of its size is the Go runtime. It is separate from the driver's binary because a
// hook runs for every container with a claim, and starts in 3 ms instead of 23 ms
// (docs/adr/0020-gates-name-namespaces.md).
package main
