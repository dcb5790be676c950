// Package exit defines netdra's exit statuses and an error type that carries an exit status.
//
// Invariant: a status has the same meaning for every command. "netdra help exit-codes" documents it.
package exit
