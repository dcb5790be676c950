//go:build race

package slices_test

// raceDetector is true if the race detector, which slows down all tests, is enabled.
const raceDetector = true
