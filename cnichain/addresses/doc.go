// Package addresses computes the blocks in an AddressRange: the number of blocks, the addresses in each block, and
// which of these addresses can be assigned to pods.
//
// Invariant: it is pure, and a single function defines the blocks, both for the controller, which
// assigns blocks to nodes, and for the nodes, which assign the addresses in their blocks to pods.
package addresses
