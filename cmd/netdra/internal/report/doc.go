// Package report makes the page of a node, from the driver's answers or from files, and writes or serves it.
//
// The rule of this package: the page names pods and claims, so only the user who asked for it may read it.
package report
