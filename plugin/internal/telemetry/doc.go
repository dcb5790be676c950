// Package telemetry provides reporting for the parts of the node driver: levels of log messages, metrics, heartbeats,
// and the limits of messages to other components.
//
// The rule of this package: it does not depend on devices, claims and pods, and imports no other package of the driver.
package telemetry
