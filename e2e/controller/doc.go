// Package controller tests the controller, its webhook and the admission policy of claims at a real API server, with
// the number of topologies of a large cluster.
//
// The rule of this package: it only reads the cluster and the metrics that the controller serves.
package controller
