package deploy_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// The table in the chart's README lists exactly the chart's values and their defaults.
func TestReadmeOfTheChart(t *testing.T) {
	text, err := os.ReadFile("chart/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	var want []string
	addDefaults(t, &want, "", values)
	readme, err := os.ReadFile("chart/README.md")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(readme)) {
		if cells := strings.Split(line, " | "); strings.HasPrefix(line, "| `") && len(cells) == 3 {
			if strings.TrimSpace(strings.Trim(cells[2], "|\n")) == "" {
				t.Errorf("README row has no description: %s", line)
			}
			got = append(got, cells[0][2:]+" "+cells[1])
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("chart/README.md does not match (-values.yaml +README):\n%s", diff)
	}
}

func addDefaults(t *testing.T, rows *[]string, prefix string, values map[string]any) {
	t.Helper()
	for key, value := range values {
		inner, isMap := value.(map[string]any)
		if isMap && len(inner) > 0 && key != "resources" { // resources are passed to pods as a single value
			addDefaults(t, rows, prefix+key+".", inner)
			continue
		}
		encoded, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		*rows = append(*rows, "`"+prefix+key+"` `"+string(encoded)+"`")
	}
}

// While `helm test` is running, it is permitted to run netdra on the nodes. The chart itself does not grant this
// permission to any account.
func TestHookOfTheChart(t *testing.T) {
	text, problems, err := helm(t, "template", "dra-network", "chart", "--namespace", "dra-network", "--show-only",
		"templates/tests/doctor.yaml")
	if err != nil {
		t.Fatal(problems)
	}
	documents := strings.Split(strings.Trim(text, "-\n"), "\n---\n")
	if len(documents) != 3 {
		t.Fatalf("got %d objects, want 3:\n%s", len(documents), text)
	}
	for _, document := range documents {
		if !strings.Contains(document, "helm.sh/hook: test\n") ||
			!strings.Contains(document, "helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded\n") {
			t.Errorf("object is not a test hook, or is not deleted after the test:\n%s", document)
		}
	}
	// Helm drops null values, so if the driver has no tolerations, neither does the test.
	if text, problems, err := helm(t, "template", "dra-network", "chart", "--namespace", "dra-network", "--show-only",
		"templates/tests/doctor.yaml", "--set", "node.tolerations=null"); err != nil ||
		strings.Contains(text, "tolerations") {
		t.Errorf("rendering without tolerations: %s\n%s", problems, text)
	}
	installed, _, err := template(t)
	if err != nil || strings.Contains(installed, "dra-network-test") {
		t.Errorf("a regular installation renders the chart's test: %v", err)
	}
}
