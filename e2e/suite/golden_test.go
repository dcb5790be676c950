package suite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A real API server, which enforces rules that no library implements, accepts the objects that the driver publishes for
// the examples in the published design, and the policies that select those devices.
func TestExamplesAreAcceptedByTheAPIServer(t *testing.T) {
	e := newEnv(t, "examples")
	files, err := filepath.Glob("../../slices/testdata/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("found files %v (%v), want at least 10", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		policies, slices := []string{}, []string{}
		for _, document := range strings.Split(string(data), "\n---\n") {
			if strings.Contains(document, "kind: ResourceSlice\n") {
				slices = append(slices, document+"\nmetadata: {generateName: example-}\n")
			} else {
				policies = append(policies, document)
			}
		}
		// A policy with the same name may already exist. Slices have generated names.
		for verb, documents := range map[string][]string{"apply": policies, "create": slices} {
			output, err := e.kubectl(strings.Join(documents, "\n---\n"), verb, "--dry-run=server", "-o",
				"name", "-f", "-")
			// The webhook returns warnings for some of them.
			if accepted := strings.Count(output, "\n") - strings.Count(output, "Warning: "); err != nil ||
				accepted != len(documents) || accepted == 0 {
				t.Errorf("%s: %d of %d objects were accepted: %v\n%s", filepath.Base(file), accepted, len(documents),
					err, output)
			}
		}
	}
}
