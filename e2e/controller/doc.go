// Package controller tests the controller, its webhook and the admission policy for claims with a real API server and
// as many topologies as in a large cluster.
//
// The rule of this package: results come only from the cluster and from the metrics that the controller serves.
package controller
