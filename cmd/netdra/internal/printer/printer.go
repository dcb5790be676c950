package printer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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

// Streams contains the standard streams for a command.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// Name is the name under which the program was called. If it is empty, the default is netdra.
	Name string
}

// CalledAs returns the program's name for use in messages.
func (c Streams) CalledAs() string { return cmp.Or(c.Name, "netdra") }

// Output forms.
const (
	FormText  = "text"
	FormTable = "table"
	FormWide  = "wide"
	FormJSON  = "json"
	FormYAML  = "yaml"
)

// ResultForms returns the output forms for results.
func ResultForms() []string { return []string{FormText, FormJSON, FormYAML} }

// ListForms returns the output forms for lists.
func ListForms() []string { return []string{FormTable, FormWide, FormJSON, FormYAML} }

// Alternatives joins words as "a, b or c".
func Alternatives(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// Column is a column of a table. Wide columns appear only with FormWide.
type Column[T any] struct {
	Title string
	Wide  bool
	Value func(*T) string
}

// List writes a list in the given form. If a table has no rows, it writes none instead.
func List[T any](w io.Writer, form string, list []T, columns []Column[T], none string) error {
	if form == FormJSON || form == FormYAML {
		return Encode(w, form, list)
	}
	out := New(w)
	if len(list) == 0 {
		out.Printf("%s", none)
		return nil
	}
	out.Table(Rows(form, list, columns))
	return nil
}

// Rows returns the heading and the rows of a table. It omits empty columns. Unless form is FormWide, it also omits wide
// columns.
func Rows[T any](form string, list []T, columns []Column[T]) [][]string {
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
	return WithoutEmpty(rows)
}

// WithoutEmpty removes the columns in which every row below the heading contains "-". It always keeps the first column.
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

// Time formats a time in UTC with the suffix Z (ISO 8601), or returns "" for the zero time. It uses UTC because nodes
// and workstations may be in different time zones, and users compare netdra's output with the logs on nodes.
func Time(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// Clock formats the time of day in UTC with milliseconds. The result has no suffix, so the column or line must state
// that the time is in UTC.
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

// Printer writes text for people. It ignores write errors, because the success of a run must not depend on whether its
// output can be written. It is not safe for concurrent use.
type Printer struct {
	W       io.Writer
	Colours bool
}

// New returns a printer that uses colors only on a terminal.
func New(w io.Writer) *Printer {
	return &Printer{W: w, Colours: IsTerminal(w) && os.Getenv("NO_COLOR") == ""}
}

// IsTerminal reports whether w is a terminal that supports moving the cursor.
func IsTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb"
}

// Escape sequences (ECMA-48).
const (
	Green  = "\x1b[32m"
	Red    = "\x1b[31m"
	Yellow = "\x1b[33m"
	Dim    = "\x1b[2m"
	plain  = "\x1b[0m"
)

// Sanitize replaces characters that control the terminal or change the text direction, because messages from plugins
// and names of links are untrusted. If colours is true, it keeps the printer's own color sequences. It keeps line feeds
// and tabs, but not carriage returns, with which text could overwrite other text. Invalid UTF-8 becomes U+FFFD.
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

// leadingColour returns the printer's color sequence at the beginning of text, or "".
func leadingColour(text string) string {
	for _, sequence := range []string{Green, Red, Yellow, Dim, plain} {
		if strings.HasPrefix(text, sequence) {
			return sequence
		}
	}
	return ""
}

// Colour returns text in the given color, or unchanged if the printer does not use colors.
func (p *Printer) Colour(colour, text string) string {
	if !p.Colours {
		return text
	}
	return colour + text + plain
}

// Printf writes a line.
func (p *Printer) Printf(format string, arguments ...any) { p.line(fmt.Sprintf(format, arguments...)) }

func (p *Printer) line(text string) { _, _ = fmt.Fprintln(p.W, Sanitize(text, p.Colours)) }

// Good writes a line that reports success.
func (p *Printer) Good(format string, arguments ...any) { p.mark(Green, "✓", format, arguments...) }

// Bad writes a line that reports failure.
func (p *Printer) Bad(format string, arguments ...any) { p.mark(Red, "✗", format, arguments...) }

// Warn writes a line that should get the user's attention.
func (p *Printer) Warn(format string, arguments ...any) { p.mark(Yellow, "!", format, arguments...) }

func (p *Printer) mark(colour, mark, format string, arguments ...any) {
	p.line(p.Colour(colour, mark) + " " + fmt.Sprintf(format, arguments...))
}

// Section writes a heading after an empty line.
func (p *Printer) Section(title string) {
	p.Printf("\n%s", p.Colour(Dim, title))
}

// Table writes rows in aligned columns. The first row is the heading.
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

// Milliseconds formats a duration in milliseconds, or in seconds if it is at least 10 s.
func Milliseconds(duration time.Duration) string {
	if duration >= 10*time.Second {
		return fmt.Sprintf("%.1f s", duration.Seconds())
	}
	return fmt.Sprintf("%d ms", duration.Milliseconds())
}

// Indent inserts spaces before every line.
func Indent(text string, spaces int) string {
	margin := strings.Repeat(" ", spaces)
	return margin + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+margin)
}

// Plural returns a number followed by a noun in the singular or plural.
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// WithDetails appends the nonempty details to text, in parentheses.
func WithDetails(text string, details ...string) string {
	details = slices.DeleteFunc(slices.Clone(details), func(detail string) bool { return detail == "" })
	if len(details) == 0 {
		return text
	}
	return fmt.Sprintf("%s (%s)", text, strings.Join(details, ", "))
}

// StepTitle returns the name of a step. For additional instances of a topology, it appends the index of the instance.
func StepTitle(step string, instance int) string {
	if instance == 0 {
		return step
	}
	return fmt.Sprintf("%s[%d]", step, instance)
}

// PrettyJSON indents JSON and returns other data unchanged.
func PrettyJSON(data []byte) string {
	var out bytes.Buffer
	if json.Indent(&out, bytes.TrimSpace(data), "", "  ") != nil {
		return string(data)
	}
	return out.String()
}

// Show writes a result in the given form. For the text form, it calls text; otherwise, it encodes the result.
func Show(w io.Writer, form string, result any, text func(*Printer)) error {
	if form != FormText {
		return Encode(w, form, result)
	}
	text(New(w))
	return nil
}

// Save writes a result that is not intended for a terminal to a file, or to standard output if path is empty.
func Save(streams Streams, path string, data []byte) error {
	if path == "" {
		if IsTerminal(streams.Out) {
			return ErrTerminal()
		}
		_, err := streams.Out.Write(data)
		return err
	}
	if err := replaceFile(path, data); err != nil {
		return fmt.Errorf("cannot write %s: %w; name another file with --file, or redirect the output", path,
			exit.Cause(err))
	}
	New(streams.Err).Good("written to %s, %d KB", path, (len(data)+1023)/1024)
	return nil
}

// ErrTerminal returns the error for a result that cannot be shown on a terminal.
func ErrTerminal() error {
	return errors.New("cannot show the result in a terminal; name a file with --file")
}

// replaceFile replaces a file atomically. The file gets mode 0600, because it contains the names of pods and claims.
// Special files are not replaced; otherwise, root could replace /dev/null. The name of the temporary file is random, so
// that other users of the directory cannot create the file first.
func replaceFile(path string, data []byte) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return errors.New("it exists and is not a regular file")
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}
