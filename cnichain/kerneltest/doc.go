// Package kerneltest tests the chain executor on the real kernel, with real CNI plugins, processes that are really
// killed, and real network namespaces. It contains only tests.
//
// The rule of this package: every test runs in its own namespaces (see cnitest.OnMachine), and checks the state of the
// kernel and the files rather than the reports of the executor.
package kerneltest
