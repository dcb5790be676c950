//go:build race

package slices_test

// raceDetector is true if the test binary was built with the race detector, which slows down all tests.
const raceDetector = true
