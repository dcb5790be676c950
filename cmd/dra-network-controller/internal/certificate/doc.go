// Package certificate creates the certificate of the webhook, makes the API server trust it, and replaces it before it
// expires. The served certificate is trusted at every moment.
//
// The rule of this package: [Rotation.Wanted] is pure and decides the content of the Secret. [Keeper], in one replica,
// writes it; [Source], in all of them, serves the current certificate. Both check every few seconds, only need
// permissions on the two objects by name, and log errors: nothing else of the controller waits for them, or ends with
// them.
//
// A certificate passes through the Secret in stages, each of which may last until a problem is fixed:
//
//  1. next: it is created, and its authority is added to the webhook's configuration.
//  2. current: API servers have had the time to read that. Replicas serve it; replicas that are behind serve the
//     previous one.
//  3. former: the next one is current. Only the authority is kept, so that replicas that are behind stay trusted.
package certificate
