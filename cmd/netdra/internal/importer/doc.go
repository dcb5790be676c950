// Package importer translates the configuration of Multus, the SR-IOV device plugin and the SR-IOV operator into
// policies, topologies, claim templates and pods. It is pure: documents in, objects and findings out. An unread field
// of the input is a finding, so that none is lost silently.
//
// The order of the work: expand reads lists; three passes read the objects that pods and networks refer to before these
// themselves; translate creates topologies; change rewrites pods; policies come last, since they name the plugins of
// all topologies that use a pool. close then reports the unread fields.
//
// If the original cannot be translated completely, the output does less and never more: a selector that was not
// understood selects nothing (see never), and a pod without a topology keeps its annotation.
package importer
