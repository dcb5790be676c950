package chainrun

import (
	"bytes"
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/view"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

// Narrator prints a line for each ADD and DEL in the watched attachment. If Full is set, it also prints every CNI call
// in full, including secrets; this is safe because the reader is the author of the configuration. Narrator is safe for
// concurrent use and does not interleave the output for different calls.
type Narrator struct {
	Out, Full *printer.Printer

	mu      sync.Mutex
	watched *executor.Attachment
}

// watch sets the attachment whose steps are printed. If it is nil, no steps are printed.
func (n *Narrator) watch(attachment *executor.Attachment) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.watched = attachment
}

// Record implements executor.Recorder.
func (n *Narrator) Record(call executor.Call) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.Full != nil {
		n.Full.Printf("%s", fullText(&call))
	}
	if n.watched == nil || call.Command != "ADD" && call.Command != "DEL" {
		return
	}
	mark := n.Out.Good
	if call.Err != nil {
		mark = n.Out.Bad
	}
	width, nameWidth, title, name := 0, 0, "", ""
	for i := range n.watched.Steps {
		record := &n.watched.Steps[i]
		this := fmt.Sprintf("%s (%s)", printer.StepTitle(record.Step.Name, record.Step.Instance), record.Step.Type)
		width, nameWidth = max(width, len(this)), max(nameWidth, len(record.IfName))
		if record.Step.Name == call.Step && record.Step.Instance == call.Instance {
			title, name = this, record.IfName
		}
	}
	mark("%s %-*s  %-*s  %7s", call.Command, width, title, nameWidth, name, printer.Milliseconds(call.Duration))
}

// fullText returns all data about a call, except for variables that are not defined in the CNI specification.
func fullText(call *executor.Call) string {
	lines := []string{fmt.Sprintf("--- %s %s, step %s: exit status %d after %s", call.Command,
		filepath.Base(call.Plugin), printer.StepTitle(call.Step, call.Instance), call.Output.ExitCode,
		printer.Milliseconds(call.Duration)), "    plugin  " + call.Plugin}
	for _, variable := range call.Env {
		if strings.HasPrefix(variable, "CNI_") {
			lines = append(lines, "    "+variable)
		}
	}
	add := func(name string, data []byte) {
		if len(bytes.TrimSpace(data)) > 0 {
			lines = append(lines, "    "+name, printer.Indent(printer.PrettyJSON(data), 6))
		}
	}
	add("stdin", call.Stdin)
	add("stdout", call.Output.Stdout)
	add("stderr", call.Output.Stderr)
	if call.Err != nil {
		add("error", []byte(call.Err.Error()))
	}
	return strings.Join(lines, "\n")
}

// PrintView prints the state of a namespace.
func PrintView(p *printer.Printer, v view.View) {
	rows := [][]string{{"INTERFACE", "KIND", "MAC", "MTU", "STATE", "ADDRESSES"}}
	for i := range v.Interfaces {
		link := &v.Interfaces[i]
		rows = append(rows, []string{
			link.Name, link.Kind, cmp.Or(link.MAC,
				"-"), fmt.Sprint(link.MTU), link.State(), cmp.Or(strings.Join(link.Addresses, ", "), "-"),
		})
	}
	p.Printf("")
	p.Table(rows)
	p.Printf("")
	if len(v.Routes) == 0 {
		p.Printf("ROUTES  none")
		return
	}
	p.Printf("ROUTES")
	for _, route := range v.Routes {
		p.Printf("%s", route)
	}
}
