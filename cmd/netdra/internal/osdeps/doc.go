// Package osdeps combines everything on the machine that the commands depend on into one value, which tests replace.
package osdeps
