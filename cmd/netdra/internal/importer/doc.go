// Package importer translates configuration for Multus, the SR-IOV device plugin and the SR-IOV operator into policies,
// topologies, claim templates and pods. It is pure: documents go in, objects and findings come out. An unread field in
// the input is a finding, so that no field is silently lost.
//
// The import runs in this order: three passes read the input, so that the objects that networks and pods refer to are
// read before the networks and pods themselves; translate creates topologies; change rewrites pods; policies are
// created after that, since they name the plugins in all topologies that use a pool. Finally, close reports the unread
// fields.
//
// If the original cannot be translated completely, the output grants less and never more: a selector that was not
// understood selects nothing (see never), and a pod whose network has no topology keeps its annotation.
package importer
