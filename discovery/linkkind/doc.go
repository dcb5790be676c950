// Package linkkind provides common properties of the kernel's kinds of links. It is separate from package discovery for
// programs that need nothing else from that package.
//
// The rule of this package: no I/O and no imports.
package linkkind
