// Package duel measures how long pods take to get network interfaces, and the cost, with this driver and with other
// drivers whose binaries are in a directory. All contestants run on the same machine, each on its own cluster of the
// same kind. Results contains the raw measurements; tables and charts are derived only from it.
//
// The rule of this package: every contestant gets the same pods, the same links and the same clock.
//
// A run has two stages. In the first stage, each round goes through all contestants, so that changes over time, such as
// the load of the machine, affect all of them. Every contestant gets a new cluster for the loads of measure: pods
// without interfaces from a contestant, sequential pods, a tight loop, many concurrent pods, and one pod after a kill.
// In the second stage, side by side, the clusters of all contestants exist at the same time, and pods are created on
// one cluster after another (sideBySide).
package duel
