// Package suite tests the driver from the user's perspective: through the API of a real Kubernetes cluster, with links
// in a real kernel.
//
// Invariant: tests are black-box. They read only the API, the kernel, the runtime's files, and the
// driver's output for users: logs, metrics, and netdra's socket. An observer that only queries the kernel determines
// whether a container has its interfaces. Comparing the state of the whole node before and after a test reveals leaks.
package suite
