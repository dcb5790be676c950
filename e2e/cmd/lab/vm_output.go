package main

import (
	"bytes"
	"fmt"
	"io"
)

// testOutput passes on what a test binary prints, and notes what it says of its tests: its exit status alone does not
// tell whether any has run.
type testOutput struct {
	output  io.Writer
	line    []byte
	passed  int
	verdict string // the last PASS or FAIL
}

// Write implements io.Writer. A line may come in parts. What cannot be passed on is an error, but was looked at.
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

// check says what is wrong with tests whose exit status was 0. A test that calls os.Exit(0) leaves no PASS; one whose
// name is wrong leaves a PASS of nothing.
func (o *testOutput) check() error {
	switch {
	case o.verdict != "PASS":
		return fmt.Errorf("the exit status is 0, but the tests did not end with PASS (%q)", o.verdict)
	case o.passed == 0:
		return fmt.Errorf("no test has passed: all were skipped, or none has that name")
	}
	return nil
}
