package scheduler

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// For the machines in the examples in the published design, the objects in the API server match the golden files,
// regardless of the Kubernetes version and its feature gates.
func TestExamples(t *testing.T) {
	onEvery(t, func(t *testing.T, p *plane) {
		machines := discoverytest.Examples()
		if len(machines) != 10 {
			t.Fatalf("found %d examples, want 10", len(machines))
		}
		t.Run("cases", func(t *testing.T) {
			for name, machine := range machines {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					checkExample(t, p, name, machine)
				})
			}
		})
	})
}

func checkExample(t *testing.T, p *plane, name string, machine *discoverytest.Host) {
	t.Helper()
	policies, want := golden(t, name)
	n := p.publish(t, name, record(t, machine), policies)
	expected := specs(t, n, want)
	err := n.until(t.Context(), name+" is published as its golden file says", func() error {
		got, err := n.published()
		if err != nil {
			return err
		}
		if diff := cmp.Diff(expected, specs(t, n, got)); diff != "" {
			return fmt.Errorf("published (-want +got):\n%s", diff)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if name == "reference-node" {
		checkReferenceNode(t, n, policies)
	}
}

// checkReferenceNode checks that the counts match those specified by the design for its reference node.
func checkReferenceNode(t *testing.T, n node, policies []v1alpha1.DeviceExposurePolicy) {
	t.Helper()
	published, err := n.published()
	if err != nil {
		t.Fatal(err)
	}
	pools, links := map[string]bool{}, map[string]bool{}
	entries := 0
	for _, slice := range published {
		pools[slice.Spec.Pool.Name] = true
		for _, device := range slice.Spec.Devices {
			entries++
			links[*device.Attributes["dra.networking/ifName"].StringValue] = true
		}
	}
	if len(policies) != 8 || len(pools) != 3 || entries != 16 {
		t.Errorf("got %d policies, %d pools and %d entries, want 8, 3 and 16", len(policies), len(pools), entries)
	}
	for _, hidden := range []string{"eno1", "br-int", "ovn-k8s-mp0"} {
		if links[hidden] {
			t.Errorf("%s was published, want it hidden", hidden)
		}
	}
}

// golden returns an example's policies and the slices published under them.
func golden(
	t *testing.T, name string,
) (policies []v1alpha1.DeviceExposurePolicy, published []*resourceapi.ResourceSlice) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "slices", "testdata", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		if !strings.Contains(document, "kind: ResourceSlice\n") {
			policies = append(policies, parse[v1alpha1.DeviceExposurePolicy](t, document))
			continue
		}
		slice := parse[resourceapi.ResourceSlice](t, document)
		published = append(published, &slice)
	}
	return policies, published
}

func parse[T any](t *testing.T, text string) T {
	t.Helper()
	var value T
	if err := yaml.UnmarshalStrict([]byte(text), &value); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return value
}

// specs returns the specs of slices as sorted YAML, independent of pool generations and generated names. The node name
// in the golden files is replaced with the node's actual name.
func specs(t *testing.T, n node, all []*resourceapi.ResourceSlice) []string {
	t.Helper()
	texts := make(map[string]bool, len(all))
	for _, slice := range all {
		spec := slice.Spec.DeepCopy()
		spec.Pool.Generation = 1
		spec.Pool.Name = strings.Replace(spec.Pool.Name, "worker-1/", n.name+"/", 1)
		spec.NodeName = &n.name
		for _, device := range spec.Devices { // policy names are prefixed with the node's name: see owned
			const exposurePolicy = "dra.networking/exposurePolicy"
			if by := device.Attributes[exposurePolicy].StringValue; by != nil {
				name := strings.TrimPrefix(*by, n.name+"-")
				device.Attributes[exposurePolicy] = resourceapi.DeviceAttribute{StringValue: &name}
			}
		}
		data, err := yaml.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		texts[string(data)] = true
	}
	if len(texts) != len(all) {
		t.Fatalf("the %d slices include duplicates", len(all))
	}
	return slices.Sorted(maps.Keys(texts))
}
