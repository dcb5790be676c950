// Package calllog writes CNI calls to files for users and reads them back.
//
// The rule of this package: it never makes a chain fail. Calls that cannot be written are lost, which is reported, and
// the driver never bases a decision on the log.
package calllog
