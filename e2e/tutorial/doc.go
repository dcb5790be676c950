// Package tutorial runs what docs/tutorial.md tells a newcomer to run.
//
// The rule of this package: commands and outputs are those of the document, word for word.
package tutorial
