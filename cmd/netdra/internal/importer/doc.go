// Package importer translates the configuration of Multus, the SR-IOV device plugin and the SR-IOV operator into
// policies, topologies, claim templates and pods. It is pure: documents go in, objects and findings come out. An unread
// field in the input is a finding, so that no field is lost silently.
//
// The import runs in this order: three passes read the objects that networks and pods refer to before they read the
// networks and pods; translate creates topologies; change rewrites pods; policies come last, since they name the
// plugins in all topologies that use a pool. Finally, close reports the unread fields.
//
// If the original cannot be translated completely, the output grants less and never more: a selector that was not
// understood selects nothing (see never), and a pod whose network has no topology keeps its annotation.
package importer
