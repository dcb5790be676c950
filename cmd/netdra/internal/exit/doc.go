// Package exit defines the exit statuses of netdra and the errors that carry them.
//
// The rule of this package: a status has the same meaning for every command. "netdra help exit-codes" documents it.
package exit
