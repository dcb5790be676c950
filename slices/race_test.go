//go:build race

package slices_test

// raceDetector reports whether the race detector, which slows everything down, is on.
const raceDetector = true
