package main

import (
	"bytes"
	"testing"
)

func TestTestOutput(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		good bool
	}{
		"passed":      {"=== RUN   TestA\n--- PASS: TestA (0.1s)\nPASS\n", true},
		"one skipped": {"--- SKIP: TestA (0.1s)\n--- PASS: TestB (0.1s)\nPASS\n", true},
		"all skipped": {"--- SKIP: TestA (0.1s)\nPASS\n", false},
		"none":        {"testing: warning: no tests to run\nPASS\n", false},
		"subtest":     {"--- SKIP: TestA (0.1s)\n    --- PASS: TestA/b (0.1s)\nPASS\n", false},
		"cut off":     {"--- PASS: TestA (0.1s)\n=== RUN   TestB\n", false},
		"failed":      {"--- PASS: TestA (0.1s)\n--- FAIL: TestB (0.1s)\nFAIL\n", false},
		"empty":       {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			var shown bytes.Buffer
			output := &testOutput{output: &shown}
			for i := range len(test.text) { // as if each byte arrived separately
				if _, err := output.Write([]byte{test.text[i]}); err != nil {
					t.Fatal(err)
				}
			}
			if err := output.check(); (err == nil) != test.good || shown.String() != test.text {
				t.Errorf("check returned %v, want success: %v; output:\n%s", err, test.good, shown.String())
			}
		})
	}
}
