// Package cnitest provides a fake node for tests: a kernel with CNI plugins, and a journal.
//
// The rule of this package: fakes hold state, reject impossible operations, and describe themselves as text; tests
// compare that text.
package cnitest
