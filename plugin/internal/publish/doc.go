// Package publish keeps the ResourceSlices of the node what facts and policies say.
//
// The rule of this package: what is published is computed from a fresh reading of the host, and from what claims hold.
// What can't be read changes nothing. It knows nothing of sandboxes: who has a device in a pod is asked for.
package publish
