// Package conditions words the condition Accepted, with which the controller tells the author of an object whether it
// is valid.
//
// The rule of this package: a condition names every problem, with its place and its fix, and fits the limit of the API
// server.
//
// Texts are in three places: the message of the condition, with all problems on one line (Describe); the event, cut to
// what events take (Tell); and the refusal of the webhook, with a cause for each problem (Causes).
package conditions
