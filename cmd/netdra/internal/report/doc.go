// Package report writes the HTML report for a node or for all nodes in a cluster.
//
// The rule of this package: the page contains pod and claim names, so only the user who requested the page may read it.
// All data from machines and clusters is escaped as text.
//
// The page shows what "netdra doctor", "devices", "explain", "claims", "trace" and "policies list" report: their
// results are the template's input. The page is one self-contained file that loads nothing and contains no scripts.
package report
