// Package calllog writes CNI calls to files for people, and reads them.
//
// The rule of this package: it never fails a chain. Calls that cannot be written are reported and lost, and the driver
// bases no decision on the log.
package calllog
