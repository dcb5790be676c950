// Package blocks assigns the blocks of AddressRanges to nodes.
//
// The rule of this package: [Plan] is pure and decides which blocks to create, release and return; [Reconciler]
// verifies every release, which is final, with the API server itself, and carries out the plan. The guarantee that no
// block belongs to two nodes does not depend on the controller's memory: the name of a block's object consists of the
// range and the number of the block, a node is identified by its UID, which is never reused, and an object is only
// deleted in the version that was inspected.
//
// The life of a block: created for a node; updated when exclusions of the range change; released when the node's UID is
// gone, with the time in its status; returned, which deletes the object, when the delay is over and no claim may use
// it. A release is final: a node of the same name gets another block.
package blocks
