// Package report writes the HTML report of a node or of all nodes of a cluster.
//
// The rule of this package: the page contains the names of pods and claims, so only the user who requested it may read
// it. All data from machines and clusters is escaped as text.
//
// The page shows what "netdra doctor", "devices", "explain", "claims", "trace" and "policies list" report: their
// results are the input of the template. It is one self-contained file that loads nothing and has no script.
package report
