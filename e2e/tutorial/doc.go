// Package tutorial runs the commands of docs/tutorial.md.
//
// The rule of this package: commands and outputs match the document word for word.
package tutorial
