// Package bundle collects the data for a fault report in an archive.
//
// The rule of this package: a bundle contains the output of netdra commands, and objects of the cluster, without the
// values of keys that may be secret. It contains no unmodified file of a node.
//
// An archive of several nodes has the directory cluster, and a directory nodes/NAME with the bundle of each node.
package bundle
