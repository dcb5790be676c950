// Package netdev is a CNI plugin that moves a network device from the host into a pod unchanged: a physical or virtual
// function, a veth, or any other link that can move to another namespace.
//
// The rule of this package: a link is always either on the host or in the pod. It is moved and renamed in one request,
// which the kernel completes even if the plugin is killed, and the data for moving it back is recorded beforehand.
//
// An attachment has these phases, with the following state after a crash in each:
//
// newRecord has written the record while the link is on the host: DEL finds it there and only removes the record.
//
// request has moved and renamed the link: DEL finds it in the pod by its index and moves it back.
//
// release has moved it back, but the record still exists: the next DEL finds nothing to move, and removes the record.
//
// A move makes the link lose its addresses, routes and the state "up", because the kernel closes a device that moves to
// another namespace and removes its configuration. These can only be restored on the host if they were recorded before
// the move. This plugin only records the state; the driver records and restores the rest.
package netdev
