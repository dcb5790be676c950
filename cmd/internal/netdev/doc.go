// Package netdev is a CNI plugin that gives a pod a network device of the host as it is: a physical or virtual
// function, a veth, any link that can change its namespace.
//
// The rule of this package: a link is never anywhere but on the host or in the pod. It moves and gets its name in one
// request, which the kernel carries out whole before the plugin can be killed, and what brings it back is written down
// before.
package netdev
