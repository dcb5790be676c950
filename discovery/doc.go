// Package discovery reads the network devices of a node: what sysfs and netlink say becomes Facts.
//
// The rule of this package: I/O comes in, a value goes out. It creates no device, writes nothing to sysfs,
// knows nothing of Kubernetes and decides nothing; which devices are offered is package policy's business.
package discovery
