// Package osdeps combines all of the commands' dependencies on the machine into one value, which tests replace.
package osdeps
