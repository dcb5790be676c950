// Command dra-network-cni is what the driver needs on the host as programs of their own, in one small binary: it is the
// one that it is called as, by a link or a copy of that name, or else the one that its first argument names. With
// --version it says which build it is.
//
//	netdev   a CNI plugin that gives a pod a network device of the host
//	gate     an OCI hook that refuses containers whose claim is not attached to their network namespace
//
// It is one binary since most of its size is Go's runtime, and the driver installs it on the host. It is not the
// driver's own binary: a hook runs for every container with a claim, and starts in 3 ms in place of 23
// (docs/adr/0020-gates-name-namespaces.md).
package main
