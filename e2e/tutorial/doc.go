// Package tutorial runs the commands in docs/tutorial.md.
//
// Invariant: commands and their output must match the document exactly.
package tutorial
