// Package blocks gives nodes the blocks of AddressRanges.
//
// The rule of this package: [Plan] is pure and says which blocks shall be made, released and returned; [Reconciler]
// makes sure, with the API server itself, that a release is right, which is final, and does what the plan says. That no
// block belongs to two nodes depends on nothing that the controller remembers: the name of a block's object is that of
// the range and the number of the block, a node is a UID, which never comes back, and an object is deleted as the
// version that was looked at, or not at all.
//
// The life of a block: created for a node; updated when exclusions of the range change; released when the node's UID is
// gone, with the time in its status; returned, which deletes the object, when the delay is over and no claim may use
// it. After a release nothing leads back: a node of the same name gets another block.
package blocks
