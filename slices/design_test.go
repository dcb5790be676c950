package slices_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	stdslices "slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// designSlice is a full or partial slice in the notation of the published design, which uses the wrapper "basic:",
// lists, and counters with future fields.
type designSlice struct {
	Spec           *designSlice     `json:"spec"`
	SharedCounters []map[string]any `json:"sharedCounters"`
	Devices        []struct {
		Name                     string           `json:"name"`
		AllowMultipleAllocations bool             `json:"allowMultipleAllocations"`
		Basic                    map[string]any   `json:"basic"`
		ConsumesCounters         []map[string]any `json:"consumesCounters"`
	} `json:"devices"`
}

// deviations returns the accepted differences from the published design. It maps patterns for lines in
// testdata/design/differences.txt to the corresponding explanations in docs/seed-and-kubernetes.md.
func deviations() map[string]string {
	const amounts = "bandwidth counters with `requestPolicy` and `valueFrom`"
	return map[string]string{
		`(macvlan|ipvlan)-capacity: map\[value:\d+\] is missing$`: "`macvlans-capacity`",
		`(macvlan|ipvlan)s-capacity: map\[value:64\] is added$`:   "drains **its own mirrored counter",
		`-counters bandwidth: map.* not map`:                      amounts,
		`-counters bandwidth: map\[value:6200\], not`:             "rounded down: 6200",
		`dra.networking/bandwidth: map\[value:\w+\] is added$`:    "which is a plain capacity of its entry",
		`example[12]: .* exclusion-slots: .* is missing$`:         "Examples 1 and 2 show a slot",
	}
}

// TestPublishedDesign compares slices that use list attributes with the published design, value by value: devices,
// attributes, capacities and counters. The design leaves out some facts, so additional attributes are allowed.
func TestPublishedDesign(t *testing.T) {
	document, err := os.ReadFile("../docs/seed-and-kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, path := range designFiles(t) {
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		for _, line := range differences(readDesign(t, path), publishedValues(t, name)) {
			lines = append(lines, name+": "+line)
		}
	}
	used := map[string]bool{}
	for _, line := range lines {
		known := ""
		for pattern, said := range deviations() {
			if regexp.MustCompile(pattern).MatchString(line) {
				known, used[pattern] = said, true
			}
		}
		if known == "" || !strings.Contains(string(document), known) {
			t.Errorf("docs/seed-and-kubernetes.md does not explain %q: %q", line, known)
		}
	}
	if len(used) != len(deviations()) {
		t.Errorf("some of these deviations no longer exist: %v", stdslices.Sorted(maps.Keys(used)))
	}
	checkDifferences(t, strings.Join(lines, "\n")+"\n")
}

// checkDifferences checks that the differences match the reviewed file.
func checkDifferences(t *testing.T, got string) {
	t.Helper()
	const golden = "testdata/design/differences.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("differences from the published design (-want +got); run with -update to accept them:\n%s", diff)
	}
}

func designFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/design/*.yaml")
	if err != nil || len(files) != 9 { // example 8 publishes no devices
		t.Fatal(files, err)
	}
	return files
}

func readDesign(t *testing.T, path string) []designSlice {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var list []designSlice
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		var s designSlice
		if err := yaml.Unmarshal([]byte(document), &s); err != nil {
			t.Fatal(err)
		}
		if s.Spec != nil {
			s = *s.Spec
		}
		list = append(list, s)
	}
	return list
}

// publishedValues returns the objects published for an example as JSON values, by name: devices with their attributes,
// capacities and counters, and counter sets.
func publishedValues(t *testing.T, example string) map[string]any {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", example+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	input, _, _ := strings.Cut(string(data), firstSlice)
	plugins := features()
	plugins.CNIBinaries.Insert("ovn-k8s-cni-overlay")
	plugins.ListAttributes = true
	decision := policy.Resolve(discovery.Facts{Devices: examples()[example]}, readPolicies(t, input),
		policy.Node{Name: "worker-1"})
	result, err := draslices.Build("worker-1", decision, plugins)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	for _, resources := range result.Resources.Pools {
		for _, slice := range resources.Slices {
			for _, set := range slice.SharedCounters {
				put(values, set.Name, plain(t, set.Counters))
			}
			for _, d := range slice.Devices {
				values[d.Name] = d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations
				put(values, d.Name, plain(t, d.Attributes))
				put(values, d.Name, plain(t, d.Capacity))
				for _, c := range d.ConsumesCounters {
					put(values, d.Name+" "+c.CounterSet, plain(t, c.Counters))
				}
			}
		}
	}
	return values
}

// plain returns a value as a map, as if it had been decoded from JSON.
func plain(t *testing.T, value any) map[string]any {
	t.Helper()
	data, err := json.Marshal(value)
	var object map[string]any
	if err == nil {
		err = json.Unmarshal(data, &object)
	}
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func put(values map[string]any, owner string, object map[string]any) {
	for name, value := range object {
		values[owner+" "+name] = value
	}
}

// differences lists the differences between a design and the published slices.
func differences(design []designSlice, published map[string]any) []string {
	want := map[string]any{}
	for _, s := range design {
		for _, set := range s.SharedCounters {
			put(want, setName(set["name"]), set["counters"].(map[string]any))
		}
		for _, d := range s.Devices {
			want[d.Name] = d.AllowMultipleAllocations
			for _, part := range []string{"attributes", "capacity"} {
				if object, ok := d.Basic[part].(map[string]any); ok {
					put(want, d.Name, object)
				}
			}
			for _, c := range d.ConsumesCounters {
				put(want, d.Name+" "+setName(c["counterSet"]), c["counters"].(map[string]any))
			}
		}
	}
	var lines []string
	for _, key := range stdslices.Sorted(maps.Keys(want)) {
		if value, ok := published[key]; !ok {
			lines = append(lines, fmt.Sprintf("%s: %v is missing", key, normal(want[key])))
		} else if !reflect.DeepEqual(normal(want[key]), normal(value)) {
			lines = append(lines, fmt.Sprintf("%s: %v, not %v", key, normal(value), normal(want[key])))
		}
	}
	for _, key := range stdslices.Sorted(maps.Keys(published)) {
		device, rest, _ := strings.Cut(key, " ")
		_, designed := want[device]
		_, known := want[key]
		isAttribute := designed && strings.Contains(rest, "/") && !strings.Contains(rest, " ")
		if designed && !known && (!isAttribute || !isScalar(published[key])) {
			lines = append(lines, fmt.Sprintf("%s: %v is added", key, normal(published[key])))
		}
	}
	return lines
}

// setName returns the driver's name for a counter set in the design, with the interface name instead of the NIC number.
func setName(name any) string {
	return map[string]string{"pf0-counters": "enp3s0f0-counters", "pf1-counters": "enp3s0f1-counters",
		"pf1-rx-handler": "enp3s0f1-counters"}[name.(string)]
}

// isScalar reports whether a published value is an attribute, as opposed to a capacity or a counter.
func isScalar(value any) bool {
	object, ok := value.(map[string]any)
	return ok && object["value"] == nil
}

// normal returns a value in normal form: quantities are canonical, and lists have the names that the API uses.
func normal(value any) any {
	switch value := value.(type) {
	case map[string]any:
		object := map[string]any{}
		for name, v := range value {
			switch name {
			case "stringSlice":
				object["strings"] = v
			case "string", "strings", "int", "ints", "bool":
				object[name] = v
			default:
				object[name] = normal(v)
			}
		}
		return object
	case string, float64:
		if quantity, err := resource.ParseQuantity(fmt.Sprint(value)); err == nil {
			return quantity.String()
		}
	}
	return value
}
