// Package duel measures how long it takes to attach network interfaces to pods, and which resources this uses, for this
// driver and for other drivers whose binaries are in a directory. All contestants run on the same machine, each on its
// own, identically configured cluster. Results contains the raw measurements, from which all tables and charts are
// derived.
//
// Invariant: every contestant gets the same pods, the same links and the same clock.
//
// A run has two stages. In the first stage, each round measures all contestants, so that changes over time, such as the
// load on the machine, affect all of them. Every contestant gets a new cluster for the measurements in measure: pods
// without interfaces from the contestant, sequential pods, pods in a tight loop, many concurrent pods, and one pod
// after the daemon has been killed. In the second stage (sideBySide), the clusters for all contestants exist at the
// same time, and pods are created on one cluster after another.
package duel
