// Package claims stores the durable records of prepared claims, including the devices that each claim holds.
//
// Invariant: a record is in the journal before any component acts on it, and at most one of several
// mutually exclusive claims has a record. The package does not depend on sandboxes, published slices or the API server.
package claims
