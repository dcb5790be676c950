package offers

import (
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

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	"github.com/dra-networking/dra-network-driver/slices/upcoming"
)

// Forms in which slices can be printed.
const (
	SlicesCounters = "counters"
	slicesKEP5941  = "kep5941"
	slicesMixins   = "mixins"
	slicesFlat     = "flat"
)

// SliceForms returns the values of --form.
func SliceForms() []string { return []string{SlicesCounters, slicesKEP5941, slicesMixins, slicesFlat} }

// SlicesOptions are the flags of "netdra slices".
type SlicesOptions struct {
	Inputs
	Form, Output string
	// Template replaces the properties of a particular node with placeholders.
	Template bool
}

// anyNode is the placeholder for the node name in templates. It is not a valid node name.
const anyNode = "NODE"

// Run prints the ResourceSlices that the machine would publish.
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

// build creates the slices in the requested form. mixins and flat are two forms of the same slices: flat is the result
// of resolving the mixins, which shows that the mixins lose no information.
func (f *SlicesOptions) build(s *Snapshot) (upcoming.Node, error) {
	if f.Form == slicesKEP5941 {
		return upcoming.RequestDriven(s.Node.Name, s.Decision, s.Features)
	}
	var err error
	published := upcoming.FromResult(s.Result)
	if f.Form == slicesMixins || f.Form == slicesFlat {
		published = published.Map(upcoming.Compact)
	}
	if f.Form == slicesFlat {
		published = published.Map(func(slice upcoming.Slice) upcoming.Slice {
			flat, failed := upcoming.Flatten(slice)
			err = errors.Join(err, failed)
			return flat
		})
	}
	return published, err
}

// sliceObject is a ResourceSlice in any form.
type sliceObject struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        sliceMetadata `json:"metadata"`
	Spec            sliceSpec     `json:"spec"`
}

type sliceMetadata struct {
	GenerateName string `json:"generateName"`
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
				Metadata: sliceMetadata{GenerateName: nodeName + "-" + policyapi.AttributeDomain + "-"},
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

// printDocuments writes each slice as a YAML document, preceded by a comment with its pool and number.
func printDocuments(w io.Writer, objects []sliceObject) error {
	number := map[string]int{} // of the slice in its pool
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
