// Package discovery reads the network devices of a node: what sysfs and netlink say becomes Facts.
//
// The rule of this package: I/O comes in, a value goes out. It creates no device, writes nothing to sysfs,
// knows nothing of Kubernetes and decides nothing; which devices are offered is package policy's business.
//
// A reading takes this way:
//
//	links.go      netlink: links, addresses, routes
//	sysfs.go      PCI functions, and what a link's directory says of it
//	rdma.go       RDMA devices, asked of sysfs and the kernel (rdmalink)
//	read.go       all of that in one reading, joined to devices
//	facts.go      the result, a value
//	busy.go       what the node itself does with a link
//	watch.go      when to read again
//	recording.go  a reading on disk, for tests and reports, with tree.go
package discovery
