// Package duel measures how long pods take to get network interfaces, and the cost, with this driver and with others
// whose binaries are in a directory: each on a cluster of its own of the same kind, in one run on one machine. Results
// contains the raw measurements; tables and charts are derived from it alone.
//
// The rule of this package: every contestant gets the same pods, the same links and the same clock.
//
// A run has two stages. In the first stage, each round goes through all contestants, so that changes over time, such as
// the load of the machine, affect all of them. Every contestant gets a new cluster, which goes through the loads of
// measure: pods without interfaces of its own, sequential pods, a tight loop, many concurrent pods, and one pod after a
// kill. Side by side, all contestants have clusters at the same time, and pods are created on one cluster after the
// other (sideBySide).
package duel
