// Package nodeapi defines the names, paths and file formats that are shared by the processes on a node: the driver, the
// OCI hook that the container runtime runs, and netdra.
//
// Invariant: it imports no Kubernetes packages, so that the hook starts in a few milliseconds.
package nodeapi
