// Package addresses computes with the blocks of an AddressRange: how many there are, which addresses each has, and
// which of those pods can get.
//
// The rule of this package: it is pure, and one function says what a block is, for the controller that gives it to a
// node and for the node that gives its addresses to pods.
package addresses
