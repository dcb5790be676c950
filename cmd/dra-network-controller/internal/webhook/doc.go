// Package webhook checks DeviceExposurePolicies, NetworkTopologies, CNIPluginSchemas, and claims with parameters for
// the driver, and reports errors at the time these objects are written.
//
// Invariant: the webhook is optional feedback. It uses the same functions as the conditions and the
// nodes, rejects only what they reject, and allows everything that it cannot check. It must never block other objects.
//
// A request passes through limit.go, which limits the resources that untrusted clients can consume; package admission,
// which decodes the request; and [Handler]. Claims are checked in claims.go.
package webhook
