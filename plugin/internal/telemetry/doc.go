// Package telemetry provides reporting for the parts of the node driver: log levels, metrics, heartbeats, and the
// limits for messages to other components.
//
// The rule of this package: it does not depend on devices, claims or pods, and imports no other driver package.
package telemetry
