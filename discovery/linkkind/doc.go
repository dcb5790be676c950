// Package linkkind knows what the kernel's kinds of links have in common. It is apart from package discovery for
// programs that need nothing else of that.
//
// The rule of this package: it asks nobody, and imports nothing.
package linkkind
