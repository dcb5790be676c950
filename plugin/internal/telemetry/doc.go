// Package telemetry is what the parts of the node driver report with: levels of log messages, metrics, heartbeats, and
// texts in the limits of those who are told.
//
// The rule of this package: it knows nothing of devices, claims and pods, and imports no other package of the driver.
package telemetry
