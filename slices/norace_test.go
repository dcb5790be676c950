//go:build !race

package slices_test

// raceDetector reports whether the race detector, which slows down all tests, is enabled.
const raceDetector = false
