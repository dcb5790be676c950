// Package monitoring tests that the alerts and the dashboard of the chart only use metrics and labels that the driver
// provides.
//
// The rule of this package: it contains only tests. They need a parser of PromQL, which users of the product need not
// have.
package monitoring
