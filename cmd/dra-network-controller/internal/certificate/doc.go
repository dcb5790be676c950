// Package certificate makes the certificate with which the webhook is served, has the API server trust it, and replaces
// it before it expires, without a moment in which the two don't fit.
//
// The rule of this package: [Rotation.Wanted] is pure and says what the Secret should hold. [Keeper], at work in one
// replica, makes it so; [Source], in all of them, hands out what is there. Both look again every few seconds, need no
// right but on the two objects by name, and log what goes wrong: nothing else of the controller waits for them, or ends
// with them.
//
// A certificate goes through the Secret in stages, each of which may be the last for as long as it takes to mend
// something:
//
//  1. next: it is made, and its authority is written into the webhook's configuration beside that of the current one.
//  2. current: API servers have had the time to see that. Replicas serve it; those that are behind serve the one before.
//  3. former: the next one is current. Of this one only the authority is left, so that those that are behind stay trusted.
package certificate
