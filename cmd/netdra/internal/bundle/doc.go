// Package bundle collects the data for a bug report in an archive.
//
// The rule of this package: a bundle contains the output of netdra commands, and objects from the cluster, without the
// values of keys that may be secret. It contains no unmodified file from a node.
//
// An archive for several nodes has the directory cluster, and a directory nodes/NAME with the bundle from each node.
package bundle
