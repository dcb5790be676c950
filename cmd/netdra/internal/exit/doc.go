// Package exit has the errors that end netdra with a certain exit status.
//
// The rule of this package: the meaning of a status is the same for every command, and "netdra help exit-codes" has it.
package exit
