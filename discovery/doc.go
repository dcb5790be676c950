// Package discovery reads information about a node's network devices from sysfs and netlink into Facts.
//
// Invariant: it turns I/O into a value. It does not create devices, write to sysfs, depend on
// Kubernetes, or make decisions: package policy decides which devices are offered.
//
// Files, in the order of a scan:
//
//	links.go      netlink: links, addresses, routes
//	sysfs.go      PCI functions, and the directory of each link
//	rdma.go       RDMA devices, from sysfs and the kernel (rdmalink)
//	read.go       combines these into devices in one scan
//	facts.go      the result, a value
//	busy.go       the node's own use of a link
//	watch.go      when to read again
//	recording.go  a scan on disk, for tests and reports, with tree.go
package discovery
