// Package kerneltest tests the chain executor on the real kernel, with real CNI plugins, processes that are really
// killed, and real network namespaces. It has no other code.
//
// The rule of this package: every test runs in namespaces of its own (see cnitest.OnMachine), and checks the kernel and
// files, never the executor's own reports.
package kerneltest
