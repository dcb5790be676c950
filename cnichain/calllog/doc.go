// Package calllog writes CNI calls to files for users and reads them back.
//
// The rule of this package: it never makes a chain fail. A call that cannot be written is lost and the loss is
// reported. The driver never bases a decision on the log.
package calllog
