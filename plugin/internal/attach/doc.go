// Package attach keeps what is attached to pod sandboxes, and the gates that hold their containers until it is.
//
// The rule of this package: what is attached is in the journal before and after it changes, one attempt to attach or
// detach at a time runs for a sandbox, and no lock is held over I/O. Nothing waits for the API server. What becomes of
// pods is told to one [Observer].
package attach
