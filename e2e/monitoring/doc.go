// Package monitoring tests that alerts and dashboard of the chart ask for metrics and labels that the driver measures.
//
// The rule of this package: it has tests only. They need a parser of PromQL, which users of the product need not have.
package monitoring
