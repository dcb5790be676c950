// Package controller tests the controller, its webhook and the admission policy of claims at a real API server, with as
// many topologies as a large cluster has.
//
// The rule of this package: it looks at the cluster and at the metrics that the controller serves, and at nothing else.
package controller
