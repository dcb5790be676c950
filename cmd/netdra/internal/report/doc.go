// Package report writes the HTML report for one node or for all nodes in a cluster.
//
// Invariant: the page contains pod and claim names, so only the user who requested the page may read it.
// All data from machines and clusters is escaped as text.
//
// The page shows the information from "netdra doctor", "devices", "explain", "claims", "trace" and "policies list"; the
// results of these commands are the input for the template. The page is a single self-contained file that loads nothing
// and contains no scripts.
package report
