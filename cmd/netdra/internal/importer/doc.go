// Package importer translates configuration for Multus, the SR-IOV device plugin and the SR-IOV operator into policies,
// topologies, claim templates and pods. It is pure: the input is documents, and the output is objects and findings.
// Every unread input field becomes a finding, so that no field is silently lost.
//
// The import has the following steps. Three passes read the input, so that objects are read before the networks and
// pods that refer to them. Next, translate creates topologies, and change rewrites pods. After that, policies are
// created, because they contain the plugins used in the topologies for each pool. Finally, close reports unread fields.
//
// If the original cannot be translated completely, the output grants less, never more: a selector that was not
// understood selects nothing (see never), and a pod whose network has no topology keeps its annotation.
package importer
