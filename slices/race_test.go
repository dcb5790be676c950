//go:build race

package slices_test

// raceDetector says that the race detector, which makes everything slower, is on.
const raceDetector = true
