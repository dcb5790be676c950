// Package duel measures how long pods take to get network interfaces, and what that costs, by this driver and by
// others whose binaries are given in a folder: each on a cluster of its own of the same kind, in one run on one
// machine. What it measured is kept as it was (Results); tables and charts are made of that alone.
//
// The rule of this package: every contestant gets the same pods, the same links and the same clock.
package duel
