// Package nritest provides a simulated container runtime that speaks NRI, and a recorder of the calls that a runtime
// makes.
//
// The rule of this package: runtimes differ only by their [Profile]. The recorder writes the calls of a runtime for the
// life of a pod as text. The directory testdata contains the recordings of the real runtimes, made by e2e/suite, and a
// test compares the simulated runtimes with them.
package nritest
