// Package duel measures how long pods take to get network interfaces, and what that costs, by this driver and by
// others whose binaries are given in a folder: each on a cluster of its own of the same kind, in one run on one
// machine. What it measured is kept as it was (Results); tables and charts are made of that alone.
//
// The rule of this package: every contestant gets the same pods, the same links and the same clock.
//
// A run has two stages. Alone, a round goes through all contestants, so that what changes with time, such as the load
// of the machine, meets each of them. Every contestant has a new cluster, and in it goes through the loads of measure:
// pods without interfaces of its own, pods one after the other, a tight loop, many at once, and one after a kill. Side
// by side, all have clusters at the same time, and pods are made on one and then on another (sideBySide).
package duel
