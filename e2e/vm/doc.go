// Package vm boots a small Linux virtual machine with emulated SR-IOV NICs, and runs commands in it. QEMU emulates the
// physical functions (Intel igb, with up to 7 virtual functions each), each with its own PCIe root, on two NUMA nodes.
// The kernel, modules and tools come from Debian packages, which are unpacked into a cache but not installed.
//
// Images of kind [RDMA] have a newer kernel and the RDMA tools. With the module from [Image.RXE], RDMA devices stay
// with their links when the links move to another network namespace, as they do with real NICs. Images of kind [OVS]
// have Open vSwitch and OVN.
//
// [Prepare] creates an [Image], from which [Image.Run] boots a machine for one command. The machine shuts down when the
// command exits. The root file system is an in-memory overlay on top of the unpacked packages, which are read-only, so
// changes disappear with the machine.
//
// Invariant: nothing outlives its caller. A machine has a time limit, and terminates together with the
// process that started it, regardless of how that process terminates.
package vm
