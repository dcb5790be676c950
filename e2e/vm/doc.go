// Package vm boots a small Linux machine with real SR-IOV NICs, and runs commands in it. QEMU emulates the physical
// functions (Intel igb, with up to 7 virtual functions each), each with its own PCIe root, on two NUMA nodes. Kernel,
// modules and tools come from Debian packages, which are unpacked into a cache: nothing is installed.
//
// Images of kind [RDMA] have a newer kernel and the RDMA tools. With the module of [Image.RXE] the RDMA devices of
// their machines follow their links into network namespaces, like the RDMA devices of real NICs. Images of kind [OVS]
// have Open vSwitch and OVN.
//
// [Prepare] creates an [Image], from which [Image.Run] boots a machine for one command and ends it. The root file
// system is the unpacked packages, read-only below a memory file system: changes disappear with the machine.
//
// The rule of this package: nothing outlives its caller. A machine has a time limit, and ends with the process that
// started it, however that process ends.
package vm
