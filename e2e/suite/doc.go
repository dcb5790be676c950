// Package suite tests the driver as a user meets it: through the API of a real Kubernetes, on links of a real kernel.
//
// The rule of this package: black box. It looks only at the API, the kernel, the runtime's files, and what the driver
// tells people: logs, metrics, and the socket of netdra. Whether a container has its interfaces is judged by an
// observer that asks the kernel alone, and whether something leaked by the state of the whole node before and after.
package suite
