// Package calllog writes CNI calls to files for users, and reads them.
//
// The rule of this package: it never makes a chain fail. Calls that cannot be written are reported and lost, and the
// driver bases no decision on the log.
package calllog
