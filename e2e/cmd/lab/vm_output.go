package main

import (
	"bytes"
	"fmt"
	"io"
)

// testOutput forwards a test binary's output and records the results, since the exit status alone does not show whether
// any test has run.
type testOutput struct {
	output  io.Writer
	line    []byte
	passed  int
	verdict string // the last PASS or FAIL
}

// Write implements io.Writer. A line may arrive in several parts. If data cannot be forwarded, Write returns an error,
// but still inspects the data.
func (o *testOutput) Write(data []byte) (int, error) {
	for part := range bytes.Lines(data) {
		o.line = append(o.line, part...)
		if !bytes.HasSuffix(part, []byte("\n")) {
			break
		}
		o.inspect(string(bytes.TrimSpace(o.line)), bytes.HasPrefix(o.line, []byte("--- PASS: ")))
		o.line = o.line[:0]
	}
	return o.output.Write(data)
}

func (o *testOutput) inspect(line string, pass bool) {
	if pass {
		o.passed++
	}
	if line == "PASS" || line == "FAIL" {
		o.verdict = line
	}
}

// check returns an error if the exit status is 0 although no test has passed. If a test calls os.Exit(0), no PASS is
// printed; if a test name is misspelled, PASS is printed even though no test has run.
func (o *testOutput) check() error {
	switch {
	case o.verdict != "PASS":
		return fmt.Errorf("the exit status is 0, but the tests did not end with PASS (%q)", o.verdict)
	case o.passed == 0:
		return fmt.Errorf("no test has passed: all were skipped, or none has that name")
	}
	return nil
}
