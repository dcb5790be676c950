// Package nritest provides a simulated container runtime that speaks NRI, and a recorder of the calls that a runtime
// makes.
//
// The rule of this package: runtimes differ only in their [Profile]. The recorder writes, as text, the calls that a
// runtime makes during the life of a pod. The testdata directory contains recordings from the real runtimes, made by
// e2e/suite, and a test compares the simulated runtimes with them.
package nritest
