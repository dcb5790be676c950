// Package linkkind provides properties of the kernel's link kinds. It is separate from package discovery so that
// programs that need only these properties do not have to import that package.
//
// Invariant: no I/O; links are values that other packages have read.
package linkkind
