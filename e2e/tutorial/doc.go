// Package tutorial runs the commands of docs/tutorial.md.
//
// The rule of this package: commands and outputs match the document literally.
package tutorial
