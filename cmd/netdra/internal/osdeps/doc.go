// Package osdeps has everything that the commands need of the machine they run on, as one value that tests replace.
package osdeps
