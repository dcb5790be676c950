// Package vm boots a small Linux machine with real SR-IOV network cards, and runs commands in it. Physical functions
// are those that QEMU emulates (Intel igb, with up to 7 virtual functions each), on PCIe roots and NUMA nodes of their
// own; kernel, modules and tools are those of Debian, as packages that are unpacked into a cache: nothing is installed.
//
// Images of kind [RDMA] have a newer kernel and RDMA's tools; with the module of [Image.RXE] the RDMA devices of their
// machines follow their links into network namespaces, as those of network cards do. Images of kind [OVS] have Open
// vSwitch and OVN.
//
// [Prepare] makes an [Image], from which [Image.Run] boots a machine for one command and ends it. The root file system
// is the unpacked packages, read-only below a memory file system: whatever a command does there is gone with its
// machine.
//
// The rule of this package: nothing outlives its caller. A machine has a time limit, and ends with the process that
// started it, however that ends.
package vm
