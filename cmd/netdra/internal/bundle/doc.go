// Package bundle collects in an archive what a fault report needs.
//
// The rule of this package: a bundle has what commands of netdra print, and objects of the cluster without the values
// of keys that look as if they were secret. It has no file of a node as it is.
//
// An archive of several nodes has the folders nodes/NAME, with what the same command has made there, and cluster.
package bundle
