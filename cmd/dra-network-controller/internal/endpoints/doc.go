// Package endpoints writes EndpointSlices of Services whose pods are reached over interfaces of a NetworkTopology: with
// the addresses that the status of their claims has.
//
// The rule of this package: [Wanted] and [Compare] are pure and say what the slices of a Service shall be; [Reconciler]
// writes them. A Service is annotated in its own namespace, and only pods of that namespace are its endpoints, so
// nobody sends traffic elsewhere with it. What Kubernetes itself writes for a Service is left alone: one that has a
// selector gets nothing from here.
//
// Why not by Kubernetes: its controllers take a pod's addresses from status.podIPs, which are those of eth0.
package endpoints
