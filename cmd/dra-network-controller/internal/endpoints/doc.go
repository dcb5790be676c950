// Package endpoints writes EndpointSlices for Services whose pods are reached over interfaces of a NetworkTopology,
// using the addresses in the status of the pods' claims.
//
// The rule of this package: [Wanted] and [Compare] are pure and compute the slices of a Service; [Reconciler] writes
// them. The annotation is on the Service itself, and only pods in the Service's namespace are its endpoints, so it
// cannot direct traffic elsewhere. Objects that Kubernetes itself writes for a Service are not touched: a Service with
// a selector gets no slices from this package.
//
// Kubernetes cannot do this: its controllers take a pod's addresses from status.podIPs, which are the addresses of
// eth0.
package endpoints
