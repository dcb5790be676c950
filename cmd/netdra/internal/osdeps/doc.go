// Package osdeps contains all dependencies of the commands on the machine, as one value that tests replace.
package osdeps
