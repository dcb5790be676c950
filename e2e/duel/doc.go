// Package duel measures how long pods take to get their network interfaces, and what this costs, with this driver and
// with other drivers whose binaries are in a directory. All contestants run on the same machine, each on its own
// cluster of the same kind. Results contains the raw measurements, from which all tables and charts are derived.
//
// The rule of this package: every contestant gets the same pods, the same links and the same clock.
//
// A run has two stages. In the first stage, each round goes through all contestants, so that changes over time, such as
// the machine's load, affect all of them. Every contestant gets a new cluster for the measurements in measure: pods
// without interfaces from a contestant, sequential pods, pods in a tight loop, many concurrent pods, and one pod after
// the daemon has been killed. In the second stage (sideBySide), the clusters of all contestants exist at the same time,
// and pods are created on one cluster after another.
package duel
