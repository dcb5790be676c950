package chainrun

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

// CallLog prints every CNI call in full, including secrets, because its reader is the author of the configuration. W
// must be set. CallLog is safe for concurrent use, and does not interleave calls.
type CallLog struct {
	mu sync.Mutex
	W  io.Writer
}

// Record implements executor.Recorder. It removes terminal control sequences from the plugins' output.
func (l *CallLog) Record(call executor.Call) {
	var text strings.Builder
	fmt.Fprintf(&text, "--- %s %s, step %s: exit status %d after %s\n",
		call.Command, filepath.Base(call.Plugin), printer.StepTitle(call.Step,
			call.Instance), call.Output.ExitCode, printer.Milliseconds(call.Duration))
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
			fmt.Fprintf(&text, "    %s\n%s\n", stream.name, printer.Indent(printer.PrettyJSON(stream.data), 6))
		}
	}
	if call.Err != nil {
		fmt.Fprintf(&text, "    error\n%s\n", printer.Indent(call.Err.Error(), 6))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = io.WriteString(l.W, printer.Sanitize(text.String(), false))
}
