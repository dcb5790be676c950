// Package tutorial runs the commands in docs/tutorial.md.
//
// The rule of this package: commands and their output must match the document exactly.
package tutorial
