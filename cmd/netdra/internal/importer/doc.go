// Package importer translates what Multus, the SR-IOV device plugin and the SR-IOV operator are configured with into
// policies, topologies, claim templates and pods. It is pure: documents in, objects and findings out. A field of the
// input that nothing has read is a finding, so none is lost without a word.
package importer
