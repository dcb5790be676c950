package importer

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

// Command contains the flags for "netdra import".
type Command struct {
	Options
	Files      []string
	SchemaFile string
	Output     string
}

// Run translates the files and prints the result.
func (c *Command) Run(streams printer.Streams) error {
	if c.KeepMultus && c.KeepResourceNames {
		return errors.New("cannot use --keep-multus with --keep-resource-names: Multus finds devices only by a claim " +
			"of the pod; omit one of them")
	}
	result, err := c.translate(streams.In)
	if err == nil {
		err = c.print(streams, result)
	}
	return exit.Check(err, err == nil && slices.ContainsFunc(result.Findings, func(f Finding) bool { return f.Action }))
}

func (c *Command) translate(stdin io.Reader) (*Result, error) {
	schemas, err := manifest.LoadSchemas(c.SchemaFile, stdin)
	if err != nil {
		return nil, err
	}
	var documents []manifest.Document
	for _, file := range c.Files {
		read, err := manifest.Read(file, stdin)
		if err != nil {
			return nil, err
		}
		documents = append(documents, read...)
	}
	options := c.Options
	options.Schemas = schemas
	return Import(documents, options)
}

// print writes the objects to stdout and the report to stderr. In text format, it writes only the report, to stdout. In
// JSON format, it writes both to stdout.
func (c *Command) print(streams printer.Streams, result *Result) error {
	switch c.Output {
	case printer.FormJSON:
		return printer.Encode(streams.Out, printer.FormJSON, result)
	case printer.FormText:
		result.Report(printer.New(streams.Out))
		return nil
	}
	result.Report(printer.New(streams.Err))
	data, err := result.YAML()
	if err == nil {
		_, err = streams.Out.Write(data)
	}
	return err
}

// Report writes the findings, grouped by object. Findings that require no action are not marked.
func (r *Result) Report(out *printer.Printer) {
	title, actions := "", 0
	for _, f := range r.Findings {
		if here := fmt.Sprintf("%s: %s", f.Location, f.Object); here != title {
			out.Printf("%s", here)
			title = here
		}
		if f.Action {
			actions++
			out.Warn("%s", f.line())
		} else {
			out.Printf("  %s", f.line())
		}
	}
	counts := map[string]int{}
	for _, object := range r.Objects {
		counts[kindOf(object)]++
	}
	var made []string
	for _, kind := range sortedKeys(counts) {
		made = append(made, fmt.Sprintf("%d %s", counts[kind], kind))
	}
	out.Printf("created: %s; %s to review", cmp.Or(strings.Join(made, ", "), "nothing"),
		printer.Plural(actions, "finding"))
}

func kindOf(object any) string {
	values, _ := object.(map[string]any)
	kind, _ := values["kind"].(string)
	return kind
}

// line returns the text of a finding without its object, because findings are grouped under headings that contain the
// object.
func (f *Finding) line() string {
	place := f.Field
	if f.Value != "" && place != "" {
		place += " = " + f.Value
	} else if f.Value != "" {
		place = f.Value
	}
	if place == "" {
		return f.Reason
	}
	return place + ": " + f.Reason
}
