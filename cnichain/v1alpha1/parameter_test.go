package v1alpha1

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A malformed object that the API server accepts does not prevent other objects from being read.
func TestUnreadableParametersAreRead(t *testing.T) {
	deep := strings.Repeat(`{"items": `, 9_000) + "{}" + strings.Repeat("}", 9_000)
	for name, test := range map[string]struct {
		json string
		want Parameter
	}{
		"fine": {`{"type": "array", "items": {"type": "string"}}`, Parameter{Type: TypeArray,
			Items: &Parameter{Type: TypeString}}},
		"null":         {`null`, Parameter{}},
		"a wrong type": {`{"type": -1}`, Parameter{Unreadable: "type has a value of the wrong type: number"}},
		"no object":    {`7`, Parameter{Unreadable: "it has a value of the wrong type: number"}},
		"inside": {`{"items": {"enum": "a"}}`, Parameter{Items: &Parameter{
			Unreadable: "enum has a value of the wrong type: string"}}},
		"a misspelt field": {`{"items": {"tpye": "string"}}`, Parameter{Items: &Parameter{
			Unknown: []string{`unknown field "tpye"`}}}},
		"braces in text": {`{"pattern": "` + strings.Repeat(`{\"`, 100) + `"}`, Parameter{
			Pattern: strings.Repeat(`{"`, 100)}},
		"too deep": {deep, Parameter{Unreadable: "is nested more than 64 times"}},
	} {
		t.Run(name, func(t *testing.T) {
			var list CNIPluginSchemaList
			text := `{"items": [{"spec": {"cniType": "a", "config": {"properties": {"x": ` + test.json + `}}}},
				{"spec": {"cniType": "b"}}]}`
			if err := json.Unmarshal([]byte(text), &list); err != nil {
				t.Fatal(err)
			}
			if len(list.Items) != 2 || list.Items[1].Spec.CNIType != "b" {
				t.Fatalf("wrong schemas: %+v", list.Items)
			}
			if diff := cmp.Diff(test.want, list.Items[0].Spec.Config.Properties["x"]); diff != "" {
				t.Errorf("parameter (-want +got):\n%s", diff)
			}
		})
	}
}
