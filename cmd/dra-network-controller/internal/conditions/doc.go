// Package conditions creates the condition Accepted, which informs an object's author whether the object is valid.
//
// Invariant: a condition lists every problem along with its field and how to fix it, and respects the
// API server's size limit.
//
// Problems are formatted for three outputs: the condition's message, with all problems on one line (Describe); events,
// shortened to the size limit (EmitEvents); and the webhook's response, with a cause for each problem (Causes).
package conditions
