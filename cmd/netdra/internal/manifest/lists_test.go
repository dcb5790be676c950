package manifest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const listed = `# two objects
apiVersion: v1
kind: List
metadata: {resourceVersion: ""}
items:
- apiVersion: networking.dra.io/v1alpha1
  kind: NetworkTopology
  metadata:
    name: first

  spec:
    steps:
    - name: a
- apiVersion: networking.dra.io/v1beta1
  kind: NetworkTopology
  metadata: {name: second}
  spec:
    steps: []
kindOfTail: 1
---
apiVersion: v1
kind: Pod
metadata: {name: third}
`

// The items in a list are returned as separate objects with their line numbers in the file.
func TestItemsOfLists(t *testing.T) {
	objects, err := Read("-", strings.NewReader(listed))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range objects {
		got = append(got, objects[i].Kind+" "+objects[i].Name+" "+objects[i].Location()+" "+
			objects[i].Position("spec.steps[0].name"))
	}
	want := []string{"NetworkTopology first stdin:6 stdin:13", "NetworkTopology second stdin:14 stdin:18",
		"Pod third stdin:21 stdin:21"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong objects (-want +got):\n%s", diff)
	}
	if text := string(objects[1].Data); strings.Contains(text, "kindOfTail") {
		t.Errorf("the second item contains text after the list:\n%s", text)
	}
}

// The cases are JSON, lists of one kind, lists without items, and invalid objects.
func TestOtherLists(t *testing.T) {
	for text, want := range map[string]string{
		`{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}},
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "b"}}]}`: "stdin:1 a, stdin:2 b",
		"apiVersion: networking.dra.io/v1alpha1\nkind: NetworkTopologyList\nitems:\n" +
			"- {apiVersion: networking.dra.io/v1alpha1, kind: NetworkTopology, metadata: {name: c}}\n": "stdin:4 c",
		"apiVersion: v1\nkind: List\nitems: []\n":                        "",
		"apiVersion: v1\nkind: List\nitems: [1]\n":                       "stdin:1: items[0] is not an object",
		"apiVersion: v1\nkind: List\nitems:\n- kind: Pod\n":              "of a list: stdin:4: the document has no",
		"apiVersion: networking.dra.io/v1alpha1\nkind: TopologiesList\n": "unknown kind TopologiesList",
	} {
		objects, err := Read("-", strings.NewReader(text))
		var got []string
		for i := range objects {
			got = append(got, objects[i].Location()+" "+objects[i].Name)
		}
		said := strings.Join(got, ", ")
		if err != nil {
			said = err.Error()
		}
		if said != want && (err == nil || !strings.Contains(said, want)) {
			t.Errorf("%s\ngot %s, want %s", text, said, want)
		}
	}
}
