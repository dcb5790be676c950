// Package cases reads test objects from embedded YAML files.
//
// Invariant: it does not depend on the kinds of the objects. Each corpus defines the other fields of its
// cases.
package cases

import (
	"encoding/json"
	"io/fs"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// Read returns the cases from all files that match a pattern. Each file contains a list of cases. Read fails the test
// if two cases have the same name.
func Read[Case any](t testing.TB, files fs.FS, pattern string, nameOf func(Case) string) []Case {
	t.Helper()
	paths, err := fs.Glob(files, pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("no file matches %s: %v", pattern, err)
	}
	var all []Case
	seen := map[string]bool{}
	for _, path := range paths {
		data, err := fs.ReadFile(files, path)
		if err != nil {
			t.Fatal(err)
		}
		var list []Case
		if err := yaml.UnmarshalStrict(data, &list); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, c := range list {
			if seen[nameOf(c)] {
				t.Fatalf("%s: two cases are named %q", path, nameOf(c))
			}
			seen[nameOf(c)] = true
			all = append(all, c)
		}
	}
	return all
}

// JSON returns an object as JSON, as a client would send it.
func JSON(t testing.TB, kind schema.GroupVersionKind, name string, spec json.RawMessage) []byte {
	t.Helper()
	data, err := json.Marshal(map[string]any{
		"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind,
		"metadata": map[string]any{"name": name}, "spec": spec,
	})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Object decodes an object into unstructured data, which is the form that the API server validates.
func Object(t testing.TB, data []byte) map[string]any {
	t.Helper()
	var object map[string]any
	if err := utiljson.Unmarshal(data, &object); err != nil { // decodes integers as int64
		t.Fatal(err)
	}
	return object
}
