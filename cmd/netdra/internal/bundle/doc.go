// Package bundle collects the data for a bug report in an archive.
//
// Invariant: a bundle contains the output of netdra commands, except for the values of keys that may
// hold secrets. It contains no unmodified files from a node.
package bundle
