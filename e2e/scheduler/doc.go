// Package scheduler tests what kube-scheduler does with what the driver publishes, with real control planes of several
// versions and no machine: the driver publishes recordings as nodes that nobody runs.
//
// The rule of this package: what may be used at once is said by the policies of a test and the published design, never
// by what is published.
package scheduler
