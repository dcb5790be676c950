// Package suite tests the driver as a user meets it: through the API of a real Kubernetes, on links of a real kernel.
//
// The rule of this package: black box. It looks only at the API, the kernel, the runtime's files and the logs.
package suite
