// Package claims keeps the durable records of prepared claims, including the devices that each claim holds.
//
// The rule of this package: a record is in the journal before any component acts on it, and of several mutually
// exclusive claims at most one has a record. The package does not depend on sandboxes, published slices or the API
// server.
package claims
