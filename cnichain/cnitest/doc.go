// Package cnitest has a node for tests: a kernel with CNI plugins on it, and a journal.
//
// The rule of this package: fakes hold state, refuse the impossible, and print themselves; a test compares what they
// print.
package cnitest
