// Package calllog writes CNI calls to files for users and reads them back.
//
// Invariant: it never makes a chain fail. If a call cannot be written, it is lost, and the loss is
// reported. The driver never bases decisions on the log.
package calllog
