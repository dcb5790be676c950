// Package addresses computes the blocks of an AddressRange: their number, the addresses of each, and the addresses that
// pods can get.
//
// The rule of this package: it is pure, and one function defines a block, for the controller that assigns it to a node
// and for the node that assigns its addresses to pods.
package addresses
