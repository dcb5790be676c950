// Package addresses computes the blocks of an AddressRange: the number of blocks, the addresses of each block, and
// those of them that pods can get.
//
// The rule of this package: it is pure, and a single function defines the blocks, both for the controller, which
// assigns them to nodes, and for the nodes, which assign their addresses to pods.
package addresses
