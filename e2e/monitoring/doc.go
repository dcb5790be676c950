// Package monitoring tests that the alerts and the dashboard in the chart use only metrics and labels that the driver
// provides.
//
// Invariant: it contains only tests. The tests need a PromQL parser, which must not become a dependency
// of the product.
package monitoring
