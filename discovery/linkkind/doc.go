// Package linkkind provides properties of the kernel's link kinds. It is separate from package discovery for the
// benefit of programs that need nothing else from that package.
//
// The rule of this package: no I/O and no imports.
package linkkind
