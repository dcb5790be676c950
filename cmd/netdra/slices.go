package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
	"github.com/dra-networking/dra-network-driver/slices/upcoming"
)

// Forms of slices.
const (
	slicesCounters = "counters"
	slicesKEP5941  = "kep5941"
	slicesMixins   = "mixins"
	slicesFlat     = "flat"
)

func sliceForms() []string { return []string{slicesCounters, slicesKEP5941, slicesMixins, slicesFlat} }

// slicesFlags are the flags of "slices".
type slicesFlags struct {
	preview
	form, output string
}

func slicesCommand(on machine, to console) *cobra.Command {
	flags := &slicesFlags{}
	cmd := &cobra.Command{
		Use:   "slices",
		Short: "Show the ResourceSlices that a machine would publish with some policies",
		Long: `slices shows what the driver would publish for the network devices of this machine, or of one that "netdra facts"
has recorded, with the DeviceExposurePolicies in files: which devices are offered, how they are shared, and what excludes
what. It changes nothing, asks nothing of Kubernetes and needs no root.

What is wrong with policies or can't be published goes to stderr; so does every device that is not offered, with the
reason. Nothing counts as in use.

The columns of the text form: POOL is the pool of the device; USE says whether several claims share it; CAPACITY is what
claims divide, with what one takes by default after a slash, or what an exclusive device has; CONSUMES is what the device
takes of the shared counters of its pool while it is in use, and in brackets its compatibility groups.

Forms of the slices:
  counters  as the driver publishes them
  kep5941   a claim says how much bandwidth a virtual function takes (DRA Shared Consumable Capacity)
  mixins    what devices have in common is said once (DRA ResourceSlice Mixins)
  flat      as mixins, and then put back where they are included: what the scheduler makes of them
No API server has kep5941 or mixins yet.`,
		Example: `  netdra slices -f policies.yaml -o text
  netdra slices -f policies.yaml | kubectl create --dry-run=server -f -
  netdra slices -f policies.yaml --from worker-1 --cni-plugin sriov --cni-plugin macvlan
  netdra slices -f policies.yaml -o json | jq '.items[].spec | select(.pool.name == "worker-1/eth0")'
  netdra slices -f policies.yaml --form mixins`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.run(cmd.Context(), on, to) },
	}
	set := cmd.Flags()
	flags.addTo(cmd)
	set.StringVar(&flags.form, "form", slicesCounters, "form of the slices: counters, kep5941, mixins or flat")
	set.StringVarP(&flags.output, "output", "o", formYAML, "form of the result: yaml, json or text")
	// The names of flags that exist are no errors.
	_ = cmd.RegisterFlagCompletionFunc("form", cobra.FixedCompletions(sliceForms(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{formYAML, formJSON, formText}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (f *slicesFlags) run(ctx context.Context, on machine, to console) error {
	if err := checkForm(f.output); err != nil {
		return err
	}
	if !slices.Contains(sliceForms(), f.form) {
		return fmt.Errorf("--form %q: use %s", f.form, strings.Join(sliceForms(), ", "))
	}
	decision, err := f.decide(ctx, on, to.in)
	if err != nil {
		return err
	}
	published, err := f.build(decision)
	if err != nil {
		return fmt.Errorf("--node: %w", err)
	}
	tellHidden(newPrinter(to.err), decision, published.Problems)
	switch f.output {
	case formText:
		return printSlicesText(newPrinter(to.out), published)
	case formJSON:
		return printResult(to.out, formJSON, map[string]any{"apiVersion": "v1", "kind": "List", "items": f.objects(published)})
	}
	return printDocuments(to.out, f.objects(published))
}

// build makes the slices in the form that was asked for.
func (f *slicesFlags) build(decision policy.Decision) (upcoming.Node, error) {
	if f.form == slicesKEP5941 {
		return upcoming.RequestDriven(f.node, decision, f.features)
	}
	result, err := draslices.Build(f.node, decision, f.features)
	if err != nil {
		return upcoming.Node{}, err
	}
	published := upcoming.FromResult(result)
	if f.form == slicesMixins || f.form == slicesFlat {
		published = published.Map(upcoming.Compact)
	}
	if f.form == slicesFlat {
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

// objects returns the slices as they would be sent to the API server, sorted by pool.
func (f *slicesFlags) objects(node upcoming.Node) []sliceObject {
	objects := []sliceObject{}
	for _, pool := range slices.Sorted(maps.Keys(node.Pools)) {
		for _, slice := range node.Pools[pool] {
			objects = append(objects, sliceObject{
				TypeMeta: metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceSlice"},
				Metadata: sliceMetadata{GenerateName: f.node + "-" + policyapi.AttributeDomain + "-"},
				Spec: sliceSpec{
					Driver: policyapi.AttributeDomain, NodeName: f.node, Slice: slice,
					Pool: resourceapi.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: int64(len(node.Pools[pool]))},
				},
			})
		}
	}
	return objects
}

// printDocuments writes each slice as a YAML document, after a comment that says which it is.
func printDocuments(to io.Writer, objects []sliceObject) error {
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
		if _, err := fmt.Fprintf(to, "---\n# pool %s, slice %d of %d\n%s", pool.Name, number[pool.Name], pool.ResourceSliceCount, data); err != nil {
			return err
		}
	}
	return nil
}
