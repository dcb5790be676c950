package printer

import (
	"bytes"
	"cmp"
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

	"golang.org/x/term"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
)

// Streams are the standard streams of a command.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// Name is how the program was called; empty: netdra.
	Name string
}

// CalledAs returns the name of the program for messages.
func (c Streams) CalledAs() string { return cmp.Or(c.Name, "netdra") }

// Forms of a result.
const (
	FormText  = "text"
	FormTable = "table"
	FormWide  = "wide"
	FormJSON  = "json"
	FormYAML  = "yaml"
)

// ResultForms are the forms of a result.
func ResultForms() []string { return []string{FormText, FormJSON, FormYAML} }

// ListForms are the forms of a list.
func ListForms() []string { return []string{FormTable, FormWide, FormJSON, FormYAML} }

// CheckForm refuses a form that results do not have.
func CheckForm(form string) error { return CheckFormOf(form, ResultForms()) }

// CheckListForm refuses a form that lists do not have.
func CheckListForm(form string) error { return CheckFormOf(form, ListForms()) }

// CheckFormOf refuses a form that is none of those that a command has.
func CheckFormOf(form string, forms []string) error {
	if !slices.Contains(forms, form) {
		return exit.Refusef("cannot use --output %q; use %s", form, Alternatives(forms))
	}
	return nil
}

// Alternatives lists words of which one is chosen.
func Alternatives(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// Column is one of a table; that of wide tables only are left out of narrow ones.
type Column[T any] struct {
	Title string
	Wide  bool
	Value func(*T) string
}

// List writes a list in a form.
func List[T any](w io.Writer, form string, list []T, columns []Column[T], none string) error {
	if form == FormJSON || form == FormYAML {
		return Encode(w, form, list)
	}
	out := New(w)
	if len(list) == 0 {
		out.Printf("%s", none)
		return nil
	}
	columns = slices.DeleteFunc(columns, func(c Column[T]) bool { return c.Wide && form != FormWide })
	rows := [][]string{{}}
	for _, c := range columns {
		rows[0] = append(rows[0], c.Title)
	}
	for i := range list {
		row := make([]string, 0, len(columns))
		for _, c := range columns {
			row = append(row, cmp.Or(c.Value(&list[i]), "-"))
		}
		rows = append(rows, row)
	}
	out.Table(WithoutEmpty(rows))
	return nil
}

// WithoutEmpty returns rows of a table without the columns that are "-" in every row but the heading. The first column
// stays.
func WithoutEmpty(rows [][]string) [][]string {
	var kept [][]string
	for _, row := range rows {
		var cells []string
		for column, cell := range row {
			if column == 0 || slices.ContainsFunc(rows[1:], func(r []string) bool { return r[column] != "-" }) {
				cells = append(cells, cell)
			}
		}
		kept = append(kept, cells)
	}
	return kept
}

// Time formats a time in UTC, and says so by a Z (ISO 8601); empty if it is not known. Nodes and workstations have
// zones of their own, and logs of nodes are compared with what netdra prints.
func Time(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// Clock formats the time of a day in UTC to the millisecond, for columns and lines that say that it is UTC.
func Clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }

// Encode writes a result as JSON or YAML.
func Encode(w io.Writer, form string, result any) error {
	encoded, err := json.MarshalIndent(result, "", "  ")
	if err == nil && form == FormYAML {
		encoded, err = yaml.JSONToYAML(encoded)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, strings.TrimRight(string(encoded), "\n"))
	return err
}

// Printer writes for people. What it cannot write is lost: nothing that a run does may depend on who reads. It is not
// safe for concurrent use.
type Printer struct {
	W        io.Writer
	Terminal bool // moves the cursor
	Colours  bool
}

// New returns a printer; it uses colours and moves the cursor only on a terminal.
func New(w io.Writer) *Printer {
	terminal := IsTerminal(w)
	return &Printer{W: w, Terminal: terminal, Colours: terminal && os.Getenv("NO_COLOR") == ""}
}

// IsTerminal reports whether w is a terminal that can move its cursor.
func IsTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb"
}

// Escape sequences (ECMA-48).
const (
	Green     = "\x1b[32m"
	Red       = "\x1b[31m"
	Yellow    = "\x1b[33m"
	Dim       = "\x1b[2m"
	plain     = "\x1b[0m"
	clearLine = "\r\x1b[K"
)

// Sanitize replaces what is not seen but commands a terminal, or turns text around: what plugins say, and what links
// are called, is strangers' text. With colours, those of the printer stay. Line feeds and tabs stay; a carriage return
// does not, since it would let text overwrite what stands before it. Bytes that are no UTF-8 become U+FFFD.
func Sanitize(text string, colours bool) string {
	var cleaned strings.Builder
	for text != "" {
		if sequence := leadingColour(text); colours && sequence != "" {
			cleaned.WriteString(sequence)
			text = text[len(sequence):]
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

// leadingColour is the printer's sequence that a text begins with; empty if it begins with none.
func leadingColour(text string) string {
	for _, sequence := range []string{Green, Red, Yellow, Dim, plain} {
		if strings.HasPrefix(text, sequence) {
			return sequence
		}
	}
	return ""
}

// Colour returns a text in a colour, if the printer has colours.
func (p *Printer) Colour(colour, text string) string {
	if !p.Colours {
		return text
	}
	return colour + text + plain
}

// Printf writes a line.
func (p *Printer) Printf(format string, arguments ...any) { p.line(fmt.Sprintf(format, arguments...)) }

func (p *Printer) line(text string) { _, _ = fmt.Fprintln(p.W, Sanitize(text, p.Colours)) }

// Good writes a line about something that succeeded.
func (p *Printer) Good(format string, arguments ...any) { p.mark(Green, "✓", format, arguments...) }

// Bad writes a line about something that failed.
func (p *Printer) Bad(format string, arguments ...any) { p.mark(Red, "✗", format, arguments...) }

// Warn writes a line that the user should notice.
func (p *Printer) Warn(format string, arguments ...any) { p.mark(Yellow, "!", format, arguments...) }

func (p *Printer) mark(colour, mark, format string, arguments ...any) {
	p.line(p.Colour(colour, mark) + " " + fmt.Sprintf(format, arguments...))
}

// Pending shows on a terminal what is being done; the next line takes its place.
func (p *Printer) Pending(text string) {
	if p.Terminal {
		_, _ = fmt.Fprint(p.W, Sanitize(p.Colour(Dim, "… "+text), p.Colours))
	}
}

// EndPending removes the text of Pending.
func (p *Printer) EndPending() {
	if p.Terminal {
		_, _ = fmt.Fprint(p.W, clearLine)
	}
}

// Section writes a heading after an empty line.
func (p *Printer) Section(title string) {
	p.Printf("\n%s", p.Colour(Dim, title))
}

// Table writes rows in columns; the first row is the heading.
func (p *Printer) Table(rows [][]string) {
	writer := tabwriter.NewWriter(p.W, 0, 0, 2, ' ', 0)
	oneLine := strings.NewReplacer("\n", " ", "\t", " ")
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = oneLine.Replace(Sanitize(cell, p.Colours))
		}
		_, _ = fmt.Fprintln(writer, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	_ = writer.Flush()
}

// Milliseconds formats how long something took.
func Milliseconds(duration time.Duration) string {
	if duration >= 10*time.Second {
		return fmt.Sprintf("%.1f s", duration.Seconds())
	}
	return fmt.Sprintf("%d ms", duration.Milliseconds())
}

// Indent puts spaces before every line.
func Indent(text string, spaces int) string {
	margin := strings.Repeat(" ", spaces)
	return margin + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+margin)
}

// Plural returns a number with a noun.
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// WithDetails returns a text with details in brackets behind it, of which those that are empty are left out.
func WithDetails(text string, details ...string) string {
	details = slices.DeleteFunc(slices.Clone(details), func(detail string) bool { return detail == "" })
	if len(details) == 0 {
		return text
	}
	return fmt.Sprintf("%s (%s)", text, strings.Join(details, ", "))
}

// StepTitle tells the instances of a step apart.
func StepTitle(step string, instance int) string {
	if instance == 0 {
		return step
	}
	return fmt.Sprintf("%s[%d]", step, instance)
}

// PrettyJSON indents JSON and leaves anything else as it is.
func PrettyJSON(data []byte) string {
	var out bytes.Buffer
	if json.Indent(&out, bytes.TrimSpace(data), "", "  ") != nil {
		return string(data)
	}
	return out.String()
}

// Show writes a result in a form: encoded, or by a function as text.
func Show(w io.Writer, form string, result any, text func(*Printer)) error {
	if form != FormText {
		return Encode(w, form, result)
	}
	text(New(w))
	return nil
}
