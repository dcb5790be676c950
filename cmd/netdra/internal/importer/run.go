package importer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/offers"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/simulate"
)

// Command contains the flags of "netdra import".
type Command struct {
	Options
	Files, Machines []string
	SchemaFile      string
	DryRun          bool
	Output          string
}

// Run translates the files and prints the result. A dry run simulates the claims instead of printing the objects.
func (c *Command) Run(ctx context.Context, deps osdeps.Deps, streams printer.Streams) error {
	if err := printer.CheckForm(c.Output); err != nil {
		return err
	}
	if tried := c.DryRun || len(c.Machines) > 0; tried && c.Output == printer.FormJSON {
		return errors.New("cannot use --output json with a dry run, which prints text; omit one of them")
	}
	if c.KeepMultus && c.KeepResourceNames {
		return errors.New("cannot use --keep-multus with --keep-resource-names: Multus finds devices only by a claim " +
			"of the pod; omit one of them")
	}
	result, err := c.translate(streams.In)
	if err != nil {
		return err
	}
	if err := c.print(streams, result); err != nil {
		return err
	}
	if c.DryRun || len(c.Machines) > 0 {
		if err := c.simulate(ctx, deps, streams, result); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(result.Findings, func(f Finding) bool { return f.Action }) {
		return exit.Reported()
	}
	return nil
}

func (c *Command) translate(stdin io.Reader) (*Result, error) {
	schemas, err := manifest.LoadSchemas(c.SchemaFile, stdin)
	if err != nil {
		return nil, err
	}
	var documents []manifest.Document
	for _, file := range c.Files {
		read, err := manifest.ReadDocuments(file, stdin)
		if err != nil {
			return nil, err
		}
		documents = append(documents, read...)
	}
	options := c.Options
	options.Schemas = schemas
	return Import(documents, options)
}

// print writes the objects to stdout and the report to stderr. In text format, it only writes the report, to stdout; in
// JSON format, it writes both to stdout.
func (c *Command) print(streams printer.Streams, result *Result) error {
	switch {
	case c.Output == printer.FormJSON:
		return printer.Encode(streams.Out, printer.FormJSON, result)
	case c.Output == printer.FormText || c.DryRun || len(c.Machines) > 0:
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

// simulate prints what the policies offer on machines, and simulates the claims on them, using the commands that a user
// would run on the written file.
func (c *Command) simulate(ctx context.Context, deps osdeps.Deps, streams printer.Streams, result *Result) error {
	if !slices.ContainsFunc(result.Objects, func(o any) bool { return kindOf(o) == manifest.KindPolicy }) {
		return exit.Refusef("cannot simulate claims: the import created no policy, so no device is offered; see the " +
			"report")
	}
	data, err := result.YAML()
	if err != nil {
		return err
	}
	machines := c.Machines
	if len(machines) == 0 {
		machines = []string{""} // this one
	}
	for _, dir := range machines {
		streams.In = bytes.NewReader(data)
		inputs := offers.Inputs{Files: []string{"-"}, Recording: dir, RecordingFlag: "--machines",
			Socket: nodeclient.DefaultSocket()}
		offered := offers.SlicesOptions{Inputs: inputs, Form: offers.SlicesCounters, Output: printer.FormText}
		if err := offered.Run(ctx, deps, streams); err != nil {
			return err
		}
	}
	trial := simulate.Options{Files: []string{"-"}, Machines: c.Machines, Output: printer.FormText}
	streams.In = bytes.NewReader(data)
	return trial.Run(ctx, deps, streams)
}

// Report writes the findings, grouped by object. Findings that require no action come last; each is written once for
// all of its objects.
func (r *Result) Report(out *printer.Printer) {
	title := ""
	for _, f := range r.Findings {
		if !f.Action {
			continue
		}
		if here := fmt.Sprintf("%s: %s", f.Location, f.Object); here != title {
			out.Printf("%s", here)
			title = here
		}
		out.Warn("%s", f.line())
	}
	r.reportNotes(out)
	counts := map[string]int{}
	for _, object := range r.Objects {
		counts[kindOf(object)]++
	}
	var made []string
	for _, kind := range sortedKeys(counts) {
		made = append(made, fmt.Sprintf("%d %s", counts[kind], kind))
	}
	actions := 0
	for _, f := range r.Findings {
		if f.Action {
			actions++
		}
	}
	if len(made) == 0 {
		made = []string{"nothing"}
	}
	out.Printf("created: %s; %s to review", strings.Join(made, ", "), printer.Plural(actions, "finding"))
}

func kindOf(object any) string {
	values, _ := object.(map[string]any)
	kind, _ := values["kind"].(string)
	return kind
}

// reportNotes writes findings that require no action.
func (r *Result) reportNotes(out *printer.Printer) {
	type note struct {
		line    string
		objects []string
	}
	var notes []note
	for _, f := range r.Findings {
		if f.Action {
			continue
		}
		line := f.Reason
		if f.Field != "" {
			_, inside, found := strings.Cut(f.Field, ": ")
			if !found {
				inside = f.Field
			}
			line = inside + ": " + line
		}
		i := slices.IndexFunc(notes, func(n note) bool { return n.line == line })
		if i < 0 {
			i, notes = len(notes), append(notes, note{line: line})
		}
		if !slices.Contains(notes[i].objects, f.Object) {
			notes[i].objects = append(notes[i].objects, f.Object)
		}
	}
	if len(notes) > 0 {
		out.Printf("no action needed:")
	}
	for _, n := range notes {
		objects := strings.Join(n.objects, ", ")
		if len(n.objects) > 3 {
			objects = fmt.Sprintf("%s and %d more", strings.Join(n.objects[:3], ", "), len(n.objects)-3)
		}
		out.Printf("  %s (%s)", n.line, objects)
	}
}

// line returns the finding without its object, because findings are grouped under the object as their heading.
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
