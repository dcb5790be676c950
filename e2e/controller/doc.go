// Package controller tests the controller, its webhook and the admission policy for claims, using a real API server and
// as many topologies as a large cluster has.
//
// Invariant: the only sources of results are the cluster and the metrics served by the controller.
package controller
