// Package claims keeps the durable records of prepared claims, and with them who holds which device.
//
// The rule of this package: a record is in the journal before anybody acts on it, and of claims that exclude each other
// one at most has a record. It knows nothing of sandboxes, of what is published, and of the API server.
package claims
