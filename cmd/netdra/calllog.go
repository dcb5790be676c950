package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

// callLog shows every CNI call whole, secrets included: it is for the person who wrote the configuration.
type callLog struct {
	mu sync.Mutex
	to io.Writer
}

// Record implements cnichain.Recorder.
func (l *callLog) Record(call executor.Call) {
	var text strings.Builder
	fmt.Fprintf(&text, "--- %s %s, step %s: exit status %d after %s\n",
		call.Command, filepath.Base(call.Plugin), titleOf(call.Step, call.Instance), call.Output.ExitCode, milliseconds(call.Duration))
	fmt.Fprintf(&text, "    plugin  %s\n", call.Plugin)
	for _, variable := range call.Env {
		if strings.HasPrefix(variable, "CNI_") {
			fmt.Fprintf(&text, "    %s\n", variable)
		}
	}
	for _, stream := range []struct {
		name string
		data []byte
	}{{"stdin", call.Stdin}, {"stdout", call.Output.Stdout}, {"stderr", call.Output.Stderr}} {
		if len(bytes.TrimSpace(stream.data)) > 0 {
			fmt.Fprintf(&text, "    %s\n%s\n", stream.name, indent(pretty(stream.data), 6))
		}
	}
	if call.Err != nil {
		fmt.Fprintf(&text, "    error\n%s\n", indent(call.Err.Error(), 6))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = io.WriteString(l.to, harmless(text.String(), false))
}

// pretty indents JSON and leaves anything else as it is.
func pretty(data []byte) string {
	var out bytes.Buffer
	if json.Indent(&out, bytes.TrimSpace(data), "", "  ") != nil {
		return string(data)
	}
	return out.String()
}
