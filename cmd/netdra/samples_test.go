package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
)

// TestSamplesOfTheExamples: on the machine from a published example, the example's topologies are valid, its pods fit,
// and its policies match the golden files.
func TestSamplesOfTheExamples(t *testing.T) {
	const samples = "../../deploy/samples/examples"
	machines := discoverytest.Examples()
	machines["reference-node"] = discoverytest.ReferenceNode()
	maps.Copy(machines, discoverytest.GPUMachines())
	tests := map[string]string{ // maps files to machines
		"1-vfs":                        "example1",
		"2-vfs-by-either-plugin":       "example2",
		"3-macvlan-parent":             "example3",
		"4-macvlan-or-ipvlan":          "example4",
		"5-macvlan-or-whole":           "example5",
		"6-functions-macvlan-or-whole": "example6",
		"7-bridge-port-or-function":    "example7",
		"8-all-but-the-cluster":        "example8",
		"9-ovn-kubernetes":             "example9",
		"bond-with-vlans":              "reference-node",
		"chosen-bandwidth":             "example1",
		"eight-gpus-by-root":           "h100",
		"eight-gpus-by-table":          "mi300x",
		"next-to-a-gpu":                "example1",
		"several-interfaces":           "example1",
		"../reference-node":            "reference-node",
	}
	files, err := filepath.Glob(samples + "/*.yaml")
	if err != nil || len(files)+1 != len(tests) {
		t.Errorf("got %d samples and %d tests, want a test for each sample; error = %v",
			len(files), len(tests), err)
	}
	for name, machine := range tests {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(samples, name+".yaml")
			if code, stdout, stderr := runNetdra(t, "", "chain", "validate", file); code != 0 {
				t.Errorf("exit status %d:\n%s%s", code, stdout, stderr)
			}
			node, gpus := "worker-1", "gpu.yaml"
			if strings.HasPrefix(name, "eight-gpus") {
				node, gpus = machine, "gpus-"+machine+".yaml"
			}
			dir := filepath.Join(t.TempDir(), node)
			if err := machines[machine].Write(dir); err != nil {
				t.Fatal(err)
			}
			arguments := []string{"simulate", "-f", file, "--machines", dir}
			if strings.Contains(name, "gpu") {
				arguments = append(arguments, "-f", "testdata/simulate/"+gpus)
			}
			code, stdout, stderr := runNetdra(t, "", arguments...)
			if code != 0 || !strings.Contains(stdout, "fits") {
				t.Errorf("exit status %d:\n%s%s", code, stdout, stderr)
			}
			number, _, _ := strings.Cut(name, "-")
			if prefix := map[string]string{"example" + number: "example-" + number + "-",
				"reference-node": "reference-"}[machine]; prefix != "" && name != "bond-with-vlans" {
				if diff := cmp.Diff(policiesOf(t, "../../slices/testdata/"+machine+".yaml", ""),
					policiesOf(t, file, prefix)); diff != "" {
					t.Errorf("policies differ from the golden file (-golden +sample):\n%s", diff)
				}
			}
		})
	}
}

// policiesOf returns the policies in a file, without the prefix that keeps their names distinct from those in other
// samples.
func policiesOf(t *testing.T, file, prefix string) []map[string]any {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var policies []map[string]any
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		var object map[string]any
		if err := yaml.Unmarshal(document, &object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if object["kind"] == "DeviceExposurePolicy" {
			metadata := object["metadata"].(map[string]any)
			name, found := strings.CutPrefix(metadata["name"].(string), prefix)
			if !found {
				t.Errorf("%s: policy name %s does not start with %s", file, name, prefix)
			}
			metadata["name"] = name
			policies = append(policies, object)
		}
	}
	return policies
}
