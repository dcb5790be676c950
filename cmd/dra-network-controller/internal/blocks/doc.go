// Package blocks assigns the blocks of AddressRanges to nodes.
//
// The rule of this package: [Plan] is pure and decides which blocks to create, release and return. A release is final,
// so [Reconciler] verifies it with the API server before it carries out the plan. The guarantee that no block belongs
// to two nodes does not depend on the controller's memory: the name of a block's object consists of the range and the
// number of the block, a node is identified by its UID, which is never reused, and an object is only deleted in the
// version that was inspected.
//
// The life of a block: created for a node; updated when exclusions of the range change; released when the node's UID no
// longer exists, with the time in its status; returned, which deletes the object, when the delay has passed and no
// claim can use it. A release is final: a new node of the same name gets another block.
package blocks
