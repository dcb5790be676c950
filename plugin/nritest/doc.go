// Package nritest provides a simulated container runtime that speaks NRI, and a recorder of the calls that a runtime
// makes.
//
// Invariant: runtimes differ only in their [Profile]. The recorder writes down, as text, the calls that
// a runtime makes during a pod's lifetime. The testdata directory contains recordings of the real runtimes, created by
// e2e/suite, and a test compares the simulated runtimes with these recordings.
package nritest
