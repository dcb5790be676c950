// Package netdev is a CNI plugin that gives a pod a network device of the host as it is: a physical or virtual
// function, a veth, any link that can change its namespace.
//
// The rule of this package: a link is never anywhere but on the host or in the pod. It moves and gets its name in one
// request, which the kernel carries out whole before the plugin can be killed, and what brings it back is written down
// before.
//
// The phases of an attachment, and what a crash leaves in each:
//
// newRecord writes the record, the link is still on the host: DEL finds it there and only forgets the record.
//
// request has moved the link and named it: DEL finds it in the pod by its index and moves it back.
//
// release has moved it back, the record is still there: the next DEL finds nothing to move, and removes the record.
//
// The link keeps no addresses, routes or state "up" across a move: the kernel closes a device that changes its
// namespace and removes what was configured on it. Whoever wants those back on the host must have noted them before.
// This plugin notes the state only; the driver notes and restores the rest.
package netdev
