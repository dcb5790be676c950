// Package telemetry contains what the parts of the node driver need for reporting: log levels, metrics, heartbeats, and
// limits on messages to other components.
//
// Invariant: it does not depend on devices, claims or pods, and imports no other driver package.
package telemetry
