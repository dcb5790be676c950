// Package netdev is a CNI plugin that moves a network device from the host into a pod unchanged: a physical or virtual
// function, a veth, or any other link that can move to another namespace.
//
// Invariant: a link is always either on the host or in the pod. It is moved and renamed in a single
// request, which the kernel completes even if the plugin is killed, and the data needed to move it back is recorded
// beforehand.
//
// An attachment goes through the following phases. After a crash in one of them, the next DEL recovers as described:
//
// newRecord has written the record, but the link is still on the host: DEL finds the link there and only removes the
// record.
//
// request has moved and renamed the link: DEL finds the link in the pod by its index and moves it back.
//
// release has moved the link back, but the record still exists: DEL finds nothing to move, and removes the record.
//
// A link that is moved loses its addresses, its routes and its up state, because the kernel closes a device that is
// moved to another namespace and removes its configuration. These can only be restored on the host if they were
// recorded before the move. This plugin only records the up state; the driver records and restores the rest.
package netdev
