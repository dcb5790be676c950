// Package tutorial runs the commands of docs/tutorial.md.
//
// The rule of this package: commands and outputs must match the document literally.
package tutorial
