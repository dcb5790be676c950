// Package importer translates what Multus, the SR-IOV device plugin and the SR-IOV operator are configured with into
// policies, topologies, claim templates and pods. It is pure: documents in, objects and findings out. A field of the
// input that nothing has read is a finding, so none is lost without a word.
//
// The order of the work: expand reads lists; three passes read what pods and networks refer to before these themselves;
// translate makes topologies; change rewrites pods; policies come last, since they name the plugins of all topologies
// that use a pool. close then reports the fields that nobody has taken.
//
// Where the original says more than can be translated, the output does less and never more: a selector that was not
// understood selects nothing (see never), and a pod without a topology keeps its annotation.
package importer
