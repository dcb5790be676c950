// Package conditions creates the condition Accepted, which reports to the author of an object whether it is valid.
//
// The rule of this package: a condition lists every problem with its field and its fix, and respects the size limit of
// the API server.
//
// Problems are formatted for three outputs: the message of the condition, with all problems on one line (Describe); the
// event, shortened to the limit of events (EmitEvents); and the response of the webhook, with a cause for each problem
// (Causes).
package conditions
