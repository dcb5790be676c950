// Package cnitest provides fakes for tests: a node, which is a kernel with CNI plugins, and a journal.
//
// Invariant: fakes hold state, reject impossible operations, and describe themselves as text; tests
// compare that text.
package cnitest
