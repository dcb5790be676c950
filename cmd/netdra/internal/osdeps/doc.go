// Package osdeps combines everything on the machine that the commands depend on in one value that tests replace.
package osdeps
