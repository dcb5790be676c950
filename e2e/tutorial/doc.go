// Package tutorial runs the commands in docs/tutorial.md.
//
// The rule of this package: commands and outputs must match the document literally.
package tutorial
