// Package verdict words the condition Accepted, with which the controller tells the author of an object whether it is
// valid.
//
// The rule of this package: a verdict names every problem, with its place and its fix, and fits into a condition.
package verdict
