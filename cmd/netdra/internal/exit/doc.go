// Package exit defines netdra's exit statuses and the errors that carry them.
//
// The rule of this package: a status has the same meaning for every command. "netdra help exit-codes" documents it.
package exit
