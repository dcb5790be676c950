// Package kerneltest tests the chain executor on the real kernel: real CNI plugins, real processes that are really
// killed, real network namespaces. It has no other code.
//
// The rule of this package: every test runs on a machine of its own (see cnitest.OnMachine), and looks at the kernel
// and at files, never at what the executor says of itself.
package kerneltest
