package offers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
	"github.com/dra-networking/dra-network-driver/slices/upcoming"
)

// Output forms of slices.
const (
	SlicesCounters = "counters"
	slicesKEP5941  = "kep5941"
	slicesMixins   = "mixins"
)

// SliceForms returns the possible values of --form.
func SliceForms() []string { return []string{SlicesCounters, slicesKEP5941, slicesMixins} }

// SlicesOptions are the flags of "netdra slices".
type SlicesOptions struct {
	Inputs
	Form, Output string
	// Template replaces node-specific properties with placeholders.
	Template bool
}

// anyNode is the placeholder for the node name in templates. It is not a valid node name.
const anyNode = "NODE"

// Run prints the ResourceSlices that would be published for the machine.
func (f *SlicesOptions) Run(ctx context.Context, deps osdeps.Deps, streams printer.Streams) error {
	if !slices.Contains(SliceForms(), f.Form) {
		return fmt.Errorf("cannot use --form %q; use %s", f.Form, strings.Join(SliceForms(), ", "))
	}
	if err := f.checkTemplate(); err != nil {
		return err
	}
	s, err := f.readFiles(ctx, deps, streams)
	if err != nil {
		return err
	}
	if f.Template {
		s.Result = withoutIdentity(s.Result)
	}
	published, err := f.build(s)
	if err != nil {
		return fmt.Errorf("--node: %w", err)
	}
	name := s.Node.Name
	if f.Template {
		published, name = forAnyNode(published, name), anyNode
	}
	printHidden(printer.New(streams.Err), s.Decision, published.Problems)
	switch f.Output {
	case printer.FormText:
		return printSlicesText(printer.New(streams.Out), published)
	case printer.FormJSON:
		return printer.Encode(streams.Out, printer.FormJSON, map[string]any{"apiVersion": "v1", "kind": "List",
			"items": sliceObjects(name, published)})
	}
	return printDocuments(streams.Out, sliceObjects(name, published))
}

// build creates the slices in the requested form.
func (f *SlicesOptions) build(s *Snapshot) (upcoming.Node, error) {
	switch f.Form {
	case slicesKEP5941:
		return upcoming.RequestDriven(s.Node.Name, s.Decision, s.Features)
	case slicesMixins:
		return upcoming.FromResult(s.Result).Map(upcoming.Compact), nil
	}
	return upcoming.FromResult(s.Result), nil
}

// sliceObject is a ResourceSlice in any form.
type sliceObject struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta `json:"metadata"`
	Spec            sliceSpec         `json:"spec"`
}

type sliceSpec struct {
	Driver         string                   `json:"driver"`
	NodeName       string                   `json:"nodeName"`
	Pool           resourceapi.ResourcePool `json:"pool"`
	upcoming.Slice `json:",inline"`
}

// sliceObjects returns the slices as they would be sent to the API server, sorted by pool.
func sliceObjects(nodeName string, node upcoming.Node) []sliceObject {
	objects := []sliceObject{}
	for _, pool := range slices.Sorted(maps.Keys(node.Pools)) {
		for _, slice := range node.Pools[pool] {
			objects = append(objects, sliceObject{
				TypeMeta: metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceSlice"},
				Metadata: metav1.ObjectMeta{GenerateName: nodeName + "-" + policyapi.AttributeDomain + "-"},
				Spec: sliceSpec{
					Driver: policyapi.AttributeDomain, NodeName: nodeName, Slice: slice,
					Pool: resourceapi.ResourcePool{Name: pool, Generation: 1,
						ResourceSliceCount: int64(len(node.Pools[pool]))},
				},
			})
		}
	}
	return objects
}

// printDocuments writes each slice as a YAML document, preceded by a comment with the name of the pool and the slice's
// number.
func printDocuments(w io.Writer, objects []sliceObject) error {
	number := map[string]int{} // the number of the slice in its pool
	for i := range objects {
		data, err := json.Marshal(objects[i])
		if err == nil {
			data, err = yaml.JSONToYAML(data)
		}
		if err != nil {
			return err
		}
		pool := objects[i].Spec.Pool
		number[pool.Name]++
		if _, err := fmt.Fprintf(w, "---\n# pool %s, slice %d of %d\n%s", pool.Name, number[pool.Name],
			pool.ResourceSliceCount, data); err != nil {
			return err
		}
	}
	return nil
}

func printSlicesText(out *printer.Printer, node upcoming.Node) error {
	devices := map[draslices.EntryID]upcoming.Device{}
	count, bytes := 0, 0
	for pool, parts := range node.Pools {
		for _, slice := range parts {
			data, err := json.Marshal(slice)
			if err != nil {
				return err
			}
			count, bytes = count+1, bytes+len(data)
			flat, err := upcoming.Flatten(slice)
			if err != nil {
				return err
			}
			for _, d := range flat.Devices {
				devices[draslices.EntryID{Pool: pool, Name: d.Name}] = d
			}
		}
	}
	if len(devices) == 0 {
		out.Printf("no device is published")
		return nil
	}
	rows := [][]string{{"POOL", "DEVICE", "TYPE", "USE", "CAPACITY", "CONSUMES", "POLICY"}}
	for i := range node.Entries {
		e := &node.Entries[i]
		rows = append(rows, sliceRow(e, devices[draslices.EntryID{Pool: e.Pool, Name: e.Name}]))
	}
	out.Table(rows)
	out.Printf("\n%s in %s and %s, %d bytes", printer.Plural(len(devices), "device"),
		printer.Plural(len(node.Pools), "pool"), printer.Plural(count, "slice"), bytes)
	return nil
}

// sliceRow returns the table row for a device. Missing values are shown as "-".
func sliceRow(e *draslices.Entry, d upcoming.Device) []string {
	var consumes []string
	for _, c := range d.ConsumesCounters {
		consumes = append(consumes, consumption(c))
	}
	return []string{e.Pool, e.Name, e.Device.Type, nodeclient.Use(e.Persona.Exclusive),
		cmp.Or(capacityText(d.Capacity), "-"), cmp.Or(strings.Join(consumes, ", "), "-"), e.Persona.Policy}
}

// capacityText formats the capacities of a device, omitting the driver's domain from their names. For each capacity, it
// includes the default request.
func capacityText(capacity map[resourceapi.QualifiedName]resourceapi.DeviceCapacity) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(capacity)) {
		c := capacity[name]
		_, short, _ := strings.Cut(string(name), "/")
		text := fmt.Sprintf("%s=%s", short, c.Value.String())
		if c.RequestPolicy != nil && c.RequestPolicy.Default != nil {
			text += " (default " + c.RequestPolicy.Default.String() + ")"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, " ")
}

func consumption(c upcoming.Consumption) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(c.Counters)) {
		counter := c.Counters[name]
		amount := "as requested"
		if counter.Value != nil {
			amount = counter.Value.String()
		}
		texts = append(texts, name+"="+amount)
	}
	if len(c.CompatibilityGroups) > 0 {
		texts = append(texts, fmt.Sprint(c.CompatibilityGroups))
	}
	return strings.Join(texts, " ")
}

// printHidden prints problems, and the reasons why devices are not offered.
func printHidden(out *printer.Printer, decision policy.Decision, problems []policy.Problem) {
	for _, problem := range slices.Concat(decision.Problems, problems) {
		out.Warn("%s", problem)
	}
	for i := range decision.Devices {
		if d := &decision.Devices[i]; len(d.Personas) == 0 {
			out.Printf("%s %s is not offered: %s", d.Device.Type, d.Device.Name, hiddenBy(d, decision.Problems))
		}
	}
}

// hiddenBy returns the reason why a device is not offered. If a problem that has already been printed is the reason, it
// refers to that problem.
func hiddenBy(d *policy.DeviceDecision, problems []policy.Problem) string {
	for _, reason := range d.Reasons {
		if reason.Outcome == policy.Failed && slices.ContainsFunc(problems, func(p policy.Problem) bool {
			return p.Policy == reason.Policy && p.Message == reason.Message
		}) {
			return fmt.Sprintf("policy %s failed, see above", reason.Policy)
		}
		if reason.Outcome == policy.Excludes || reason.Outcome == policy.Failed {
			return reason.String()
		}
	}
	return "no policy matches it"
}

// checkTemplate rejects flags that cannot be combined with --template.
func (f *SlicesOptions) checkTemplate() error {
	switch {
	case !f.Template:
		return nil
	case f.Node != "":
		return errors.New("cannot use --node with --template, which is for every node of a kind; omit --node")
	case f.Form == slicesKEP5941:
		return errors.New("cannot print a template in the form kep5941, which no API server supports; use counters")
	}
	return nil
}

// withoutIdentity returns a copy of result without the attributes that differ between machines of the same kind.
func withoutIdentity(result draslices.Result) draslices.Result {
	strip := func(d *resourceapi.Device) {
		*d = *d.DeepCopy()
		for _, name := range policy.Identifying() {
			delete(d.Attributes, name)
		}
	}
	result.Entries = slices.Clone(result.Entries)
	for i := range result.Entries {
		strip(&result.Entries[i].Spec)
	}
	for _, pool := range result.Resources.Pools {
		for _, slice := range pool.Slices {
			for i := range slice.Devices {
				strip(&slice.Devices[i])
			}
		}
	}
	return result
}

// forAnyNode replaces the node name in pool names with anyNode.
func forAnyNode(node upcoming.Node, name string) upcoming.Node {
	rename := func(pool string) string { return anyNode + strings.TrimPrefix(pool, name) }
	pools := map[string][]upcoming.Slice{}
	for pool, parts := range node.Pools {
		pools[rename(pool)] = parts
	}
	node.Pools, node.Entries = pools, slices.Clone(node.Entries)
	for i := range node.Entries {
		node.Entries[i].Pool = rename(node.Entries[i].Pool)
	}
	return node
}

// Offer describes one published device. All fields are comparable, and a difference in any of them is a change.
type Offer struct {
	Pool     string `json:"pool"`
	Name     string `json:"name"`
	Policy   string `json:"policy"`
	Use      string `json:"use"`
	Plugins  string `json:"plugins"`
	Capacity string `json:"capacity,omitempty"`
	Consumes string `json:"consumes,omitempty"`
	// Attributes are the attributes added by the policy, sorted by name.
	Attributes string `json:"attributes,omitempty"`
}

// Kinds of changes.
const (
	Added   = "added"
	Removed = "removed"
	Changed = "changed"
)

// Change is the effect on one device of replacing one set of policies with another.
type Change struct {
	Kind string `json:"kind"`
	Pool string `json:"pool"`
	Name string `json:"name"`
	// Fields are the fields that differ. They are set if the device is offered both before and after the change.
	Fields []Field `json:"fields,omitempty"`
	// Offer is the added or removed device.
	Offer *Offer `json:"offer,omitempty"`
	// HeldBy lists the claims that hold the device, as namespace/name.
	HeldBy []string `json:"heldBy,omitempty"`
}

// Field is a changed field.
type Field struct {
	Name   string `json:"name"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// Compare returns the changes, sorted by pool and name. A device is identified by its pool and name, so a renamed
// device is listed as removed and added.
func Compare(before, after []Offer) []Change {
	changes := []Change{}
	for i := range before {
		old := &before[i]
		switch found := find(after, old); {
		case found == nil:
			changes = append(changes, Change{Kind: Removed, Pool: old.Pool, Name: old.Name, Offer: old})
		case *found != *old:
			changes = append(changes, Change{Kind: Changed, Pool: old.Pool, Name: old.Name, Fields: fields(old, found)})
		}
	}
	for i := range after {
		if find(before, &after[i]) == nil {
			changes = append(changes, Change{Kind: Added, Pool: after[i].Pool, Name: after[i].Name, Offer: &after[i]})
		}
	}
	slices.SortFunc(changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Name, b.Name))
	})
	return changes
}

func find(among []Offer, wanted *Offer) *Offer {
	i := slices.IndexFunc(among, func(o Offer) bool { return o.Pool == wanted.Pool && o.Name == wanted.Name })
	if i < 0 {
		return nil
	}
	return &among[i]
}

func fields(before, after *Offer) []Field {
	all := []Field{
		{"policy", before.Policy, after.Policy}, {"use", before.Use, after.Use}, {"plugins", before.Plugins,
			after.Plugins},
		{"capacity", before.Capacity, after.Capacity}, {"consumes", before.Consumes, after.Consumes},
		{"attributes", before.Attributes, after.Attributes},
	}
	return slices.DeleteFunc(all, func(f Field) bool { return f.Before == f.After })
}
