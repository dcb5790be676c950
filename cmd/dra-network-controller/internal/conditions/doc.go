// Package conditions words the condition Accepted, with which the controller tells the author of an object whether it
// is valid.
//
// The rule of this package: a condition names every problem, with its place and its fix, and fits the limit of the API
// server.
package conditions
