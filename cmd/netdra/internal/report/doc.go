// Package report creates the HTML page of a node from the driver's answers or from files, and writes or serves it.
//
// The rule of this package: the page contains the names of pods and claims, so only the user who requested it may read
// it.
package report
