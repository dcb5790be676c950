// Package certificate creates the webhook's certificate, makes the API server trust it, and replaces it before it
// expires. The served certificate is trusted at all times.
//
// Invariant: [Rotation.Wanted] is pure and decides the content of the Secret. [Keeper] runs in one
// replica and writes the Secret; [Source] runs in all replicas and serves the current certificate. Both run their
// checks every few seconds, need permissions only for two objects, by name, and log errors instead of returning them.
// The controllers do not wait for either of them, and do not stop when one fails.
//
// A certificate goes through the following stages in the Secret. If a problem occurs, it stays in a stage until the
// problem is fixed:
//
//  1. next: it is created, and its authority is added to the webhook's configuration.
//  2. current: API servers have had time to read the configuration. Replicas serve the certificate; replicas that lag behind serve the previous certificate.
//  3. former: the next certificate is current. Only the old authority is kept, so that replicas that lag behind stay trusted.
package certificate
