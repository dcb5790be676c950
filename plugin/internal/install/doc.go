// Package install maintains the helper binary on the node and the host directories that are mounted into the driver's
// container. Both can be removed, replaced or damaged while the driver is running.
//
// Invariant: every call reads the current state of the host and changes only what differs from the
// desired state. Repairs can be repeated safely, and a driver that is killed in the middle of a repair leaves behind no
// state that the next call could misinterpret.
package install
