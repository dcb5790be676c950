// Package calllog writes CNI calls to files for people, and reads them.
//
// The rule of this package: it never fails a chain. What can't be written is told and lost, and nothing that the driver
// decides is read from here.
package calllog
