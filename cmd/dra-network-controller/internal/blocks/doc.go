// Package blocks assigns the blocks of AddressRanges to nodes.
//
// Invariant: [Plan] is pure and decides which blocks to create, release and return. A release is final,
// so [Reconciler] verifies it with the API server before it carries out the plan. The guarantee that no block belongs
// to two nodes does not depend on the controller's memory: a block object is named after its range and number, a node
// is identified by its UID, which is never reused, and an object is only deleted if it has not changed since it was
// inspected.
//
// A block goes through these phases: it is created for a node; it is updated when the range's exclusions change; it is
// released, with a timestamp in its status, when the node's UID no longer exists; and it is returned, which deletes the
// object, when the delay has passed and no claim can still be using it. A release is final: a new node with the same
// name gets another block.
package blocks
