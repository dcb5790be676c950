// Package suite tests the driver from the user's perspective: through the API of a real Kubernetes, on links of a real
// kernel.
//
// The rule of this package is black-box testing. It reads only the API, the kernel, the runtime's files, and the
// driver's output for users: logs, metrics, and the socket of netdra. An observer that queries only the kernel decides
// whether a container has its interfaces, and a comparison of the state of the whole node before and after finds leaks.
package suite
