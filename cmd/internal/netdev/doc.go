// Package netdev is a CNI plugin that moves a network device of the host into a pod unchanged: a physical or virtual
// function, a veth, or any other link that can change its namespace.
//
// The rule of this package: a link is always either on the host or in the pod. It is moved and renamed in one request,
// which the kernel completes even if the plugin is killed, and the data for moving it back is recorded before.
//
// The phases of an attachment, and the state after a crash in each:
//
// newRecord writes the record while the link is on the host: DEL finds it there and only removes the record.
//
// request has moved and renamed the link: DEL finds it in the pod by its index and moves it back.
//
// release has moved it back, but the record still exists: the next DEL finds nothing to move, and removes the record.
//
// The link loses its addresses, routes and the state "up" in a move: the kernel closes a device that changes its
// namespace and removes its configuration. To restore it on the host, it must be recorded before. This plugin records
// only the state; the driver records and restores the rest.
package netdev
