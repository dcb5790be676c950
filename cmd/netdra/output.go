package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/view"
)

// console is what a command talks to.
type console struct {
	in       io.Reader
	out, err io.Writer
	// name is how the program was called; empty: netdra.
	name string
}

func (c console) calledAs() string { return orDefault(c.name, "netdra") }

// Forms of a result.
const (
	formText  = "text"
	formTable = "table"
	formWide  = "wide"
	formJSON  = "json"
	formYAML  = "yaml"
)

// formFlag adds --output.
func formFlag(cmd *cobra.Command, form *string) {
	*form = formText
	cmd.Flags().VarP(formValue{form}, "output", "o", "form of the result: text (or table), json or yaml; with json and yaml the progress goes to stderr")
	// The name of a flag that exists is no error.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{formText, formJSON, formYAML}, cobra.ShellCompDirectiveNoFileComp))
}

// formValue is a flag's value: "table" is another word for text, as other commands say.
type formValue struct{ form *string }

// Set implements pflag.Value.
func (v formValue) Set(form string) error {
	if form == formTable {
		form = formText
	}
	*v.form = form
	return nil
}

// String implements pflag.Value.
func (v formValue) String() string {
	if v.form == nil {
		return ""
	}
	return *v.form
}

// Type implements pflag.Value.
func (formValue) Type() string { return "string" }

func checkForm(form string) error {
	if !slices.Contains([]string{formText, formJSON, formYAML}, form) {
		return fmt.Errorf("--output %q: use text, json or yaml", form)
	}
	return nil
}

// listFlag adds --output to a command that shows a table.
func listFlag(cmd *cobra.Command, form *string) {
	cmd.Flags().StringVarP(form, "output", "o", formTable, "form of the result: table, wide, json or yaml")
	// The name of a flag that exists is no error.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{formTable, formWide, formJSON, formYAML}, cobra.ShellCompDirectiveNoFileComp))
}

func checkListForm(form string) error {
	if !slices.Contains([]string{formTable, formWide, formJSON, formYAML}, form) {
		return usage("--output %q: use table, wide, json or yaml", form)
	}
	return nil
}

// column is one of a table; that of wide tables only are left out of narrow ones.
type column[T any] struct {
	title string
	wide  bool
	value func(*T) string
}

// printList writes a list in a form.
func printList[T any](to io.Writer, form string, list []T, columns []column[T], none string) error {
	if form == formJSON || form == formYAML {
		return printResult(to, form, list)
	}
	out := newPrinter(to)
	if len(list) == 0 {
		out.say("%s", none)
		return nil
	}
	columns = slices.DeleteFunc(columns, func(c column[T]) bool { return c.wide && form != formWide })
	rows := [][]string{{}}
	for _, c := range columns {
		rows[0] = append(rows[0], c.title)
	}
	for i := range list {
		row := make([]string, 0, len(columns))
		for _, c := range columns {
			row = append(row, orDefault(c.value(&list[i]), "-"))
		}
		rows = append(rows, row)
	}
	out.table(rows)
	return nil
}

// timeText is a time as people read it; empty if it is not known.
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

// printResult writes a result as JSON or YAML.
func printResult(to io.Writer, form string, result any) error {
	encoded, err := json.MarshalIndent(result, "", "  ")
	if err == nil && form == formYAML {
		encoded, err = yaml.JSONToYAML(encoded)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(to, strings.TrimRight(string(encoded), "\n"))
	return err
}

// printer writes for people. What it can't write is lost: nothing that a run does may depend on who reads.
type printer struct {
	to       io.Writer
	terminal bool // moves the cursor
	colours  bool
}

func newPrinter(to io.Writer) *printer {
	terminal := isTerminal(to)
	return &printer{to: to, terminal: terminal, colours: terminal && os.Getenv("NO_COLOR") == ""}
}

func isTerminal(to io.Writer) bool {
	file, ok := to.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil && os.Getenv("TERM") != "dumb"
}

// Escape sequences (ECMA-48).
const (
	green     = "\x1b[32m"
	red       = "\x1b[31m"
	yellow    = "\x1b[33m"
	dim       = "\x1b[2m"
	plain     = "\x1b[0m"
	clearLine = "\r\x1b[K"
)

// harmless replaces what is not seen but commands a terminal, or turns text around: what plugins say, and what links are called, is
// strangers' text. With colours, those of the printer stay.
func harmless(text string, colours bool) string {
	var cleaned strings.Builder
	for text != "" {
		if own := ownColour(text); colours && own != "" {
			cleaned.WriteString(own)
			text = text[len(own):]
			continue
		}
		char, size := utf8.DecodeRuneInString(text)
		if char != '\n' && char != '\t' && !unicode.IsGraphic(char) {
			char = unicode.ReplacementChar
		}
		cleaned.WriteRune(char)
		text = text[size:]
	}
	return cleaned.String()
}

// ownColour is the printer's sequence that a text begins with; empty if it begins with none.
func ownColour(text string) string {
	for _, sequence := range []string{green, red, yellow, dim, plain} {
		if strings.HasPrefix(text, sequence) {
			return sequence
		}
	}
	return ""
}

func (p *printer) colour(colour, text string) string {
	if !p.colours {
		return text
	}
	return colour + text + plain
}

// say writes a line.
func (p *printer) say(format string, arguments ...any) { p.line(fmt.Sprintf(format, arguments...)) }

func (p *printer) line(text string) { _, _ = fmt.Fprintln(p.to, harmless(text, p.colours)) }

// good, bad and warn write a line with a mark.
func (p *printer) good(format string, arguments ...any) { p.mark(green, "✓", format, arguments...) }
func (p *printer) bad(format string, arguments ...any)  { p.mark(red, "✗", format, arguments...) }
func (p *printer) warn(format string, arguments ...any) { p.mark(yellow, "!", format, arguments...) }

func (p *printer) mark(colour, mark, format string, arguments ...any) {
	p.line(p.colour(colour, mark) + " " + fmt.Sprintf(format, arguments...))
}

// pending shows on a terminal what is being done; the next line takes its place.
func (p *printer) pending(text string) {
	if p.terminal {
		_, _ = fmt.Fprint(p.to, harmless(p.colour(dim, "… "+text), p.colours))
	}
}

func (p *printer) endPending() {
	if p.terminal {
		_, _ = fmt.Fprint(p.to, clearLine)
	}
}

// section writes a heading after an empty line.
func (p *printer) section(title string) {
	p.say("\n%s", p.colour(dim, title))
}

// table writes rows in columns; the first row is the heading.
func (p *printer) table(rows [][]string) {
	writer := tabwriter.NewWriter(p.to, 0, 0, 2, ' ', 0)
	oneLine := strings.NewReplacer("\n", " ", "\t", " ")
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = oneLine.Replace(harmless(cell, p.colours))
		}
		_, _ = fmt.Fprintln(writer, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	_ = writer.Flush()
}

// look writes what a namespace holds.
func (p *printer) look(of view.View) {
	rows := [][]string{{"INTERFACE", "KIND", "MAC", "MTU", "STATE", "ADDRESSES"}}
	for i := range of.Interfaces {
		link := &of.Interfaces[i]
		rows = append(rows, []string{
			link.Name, link.Kind, orDefault(link.MAC, "-"), fmt.Sprint(link.MTU), link.State(), orDefault(strings.Join(link.Addresses, ", "), "-"),
		})
	}
	p.say("")
	p.table(rows)
	p.say("")
	if len(of.Routes) == 0 {
		p.say("ROUTES  none")
		return
	}
	p.say("ROUTES")
	for _, route := range of.Routes {
		p.say("%s", route)
	}
}

// milliseconds is how long something took, as people read it.
func milliseconds(duration time.Duration) string {
	if duration >= 10*time.Second {
		return fmt.Sprintf("%.1f s", duration.Seconds())
	}
	return fmt.Sprintf("%d ms", duration.Milliseconds())
}

// indent puts spaces before every line.
func indent(text string, spaces int) string {
	margin := strings.Repeat(" ", spaces)
	return margin + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+margin)
}
