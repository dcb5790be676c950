// Package endpoints writes EndpointSlices for Services whose pods are reached through interfaces that a NetworkTopology
// creates. It takes the addresses from the status of the pods' claims.
//
// Invariant: [Wanted] and [Compare] are pure and compute a Service's slices; [Reconciler] writes them.
// The annotation is on the Service itself, and only pods in the Service's namespace become endpoints, so the annotation
// cannot redirect other traffic. Objects that Kubernetes itself writes for a Service are not touched: this package does
// not create slices for a Service with a selector.
//
// Kubernetes cannot do this: its controllers take a pod's addresses from status.podIPs, which contains the addresses of
// eth0.
package endpoints
