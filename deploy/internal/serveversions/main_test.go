package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const made = `---
spec:
  versions:
  - additionalPrinterColumns:
    - name: A
    name: v1
    schema:
      openAPIV3Schema:
        maxLength: 9007199254740
        type: string
    served: true
    storage: true
`

// TestServe: the copies have all of the stored version but its name and that it is stored.
func TestServe(t *testing.T) {
	got, err := serve([]byte(made), []string{"v2", "v3"})
	if err != nil {
		t.Fatal(err)
	}
	stored := strings.SplitAfterN(made, "  versions:\n", 2)[1]
	want := "---\nspec:\n  conversion:\n    strategy: None\n  versions:\n" + stored
	for _, name := range []string{"v2", "v3"} {
		want += strings.NewReplacer("v1", name, "storage: true", "storage: false").Replace(stored)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("wrong definition (-want +got):\n%s", diff)
	}
}

// TestServeRefuses: a definition that has several versions already, or none, is not the work of controller-gen.
func TestServeRefuses(t *testing.T) {
	again, err := serve([]byte(made), []string{"v2"})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		string(again): "it has 2 versions, want 1",
		"spec: {}":    "it has 0 versions, want 1",
		"a: 1\na: 2":  `key "a" already set in map`,
		strings.Replace(made, "storage: true", "storage: false", 1): "its version is not served and stored",
	} {
		if _, err := serve([]byte(text), []string{"v2"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want ... %s ... of:\n%s", err, want, text)
		}
	}
}
