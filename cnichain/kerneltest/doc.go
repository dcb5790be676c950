// Package kerneltest tests the chain executor on a real kernel, with real CNI plugins and network namespaces, and with
// processes that are actually killed. It contains only tests.
//
// Invariant: every test runs in its own namespaces (see cnitest.OnMachine), and checks the state of the
// kernel and the files rather than relying on the executor's results.
package kerneltest
