package reference_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/docs/reference"
)

// TestAPI generates the API page from the CRDs, which are generated from the types.
func TestAPI(t *testing.T) {
	files, err := filepath.Glob("../../deploy/crds/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %d CRD files, error: %v", len(files), err)
	}
	var text bytes.Buffer
	text.WriteString("# API reference\n\n`make generate` creates this page from the CRDs in `deploy/crds`. `[]` are the items " +
		"of a list, `{}` the values of a map.\n" +
		"All versions of a kind have the same fields: an object that is written in one version can be read in " +
		"another ([which version to use](../upgrade.md#which-version-of-the-apis)).\n")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var definition apiextensions.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(data, &definition); err != nil {
			t.Fatal(err)
		}
		version := definition.Spec.Versions[0] // a test in package deploy ensures that all versions are the same
		var served []string
		for i := range definition.Spec.Versions {
			served = append(served, fmt.Sprintf("`%s/%s`", definition.Spec.Group, definition.Spec.Versions[i].Name))
		}
		fmt.Fprintf(&text, "\n## %s\n\n%s, cluster-scoped. Short names: %s.\n\n%s\n", definition.Spec.Names.Kind,
			strings.Join(served, " and "),
			strings.Join(definition.Spec.Names.ShortNames, ", "), version.Schema.OpenAPIV3Schema.Description)
		for _, part := range []string{"spec", "status"} {
			if schema, ok := version.Schema.OpenAPIV3Schema.Properties[part]; ok {
				text.WriteString("\n| field | type | |\n|---|---|---|\n")
				fields(&text, part, schema)
			}
		}
	}
	claimParameters(t, &text)
	templates(t, &text)
	reference.Page(t, "api.md", text.Bytes())
}

// fields writes a row for each of the schema's fields, sorted by name, and for the fields below them.
func fields(text *bytes.Buffer, path string, schema apiextensions.JSONSchemaProps) {
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		field, fieldPath := schema.Properties[name], path+"."+name
		what := oneLine(field.Description)
		if slices.Contains(schema.Required, name) {
			what = "**Required.** " + what
		}
		fmt.Fprintf(text, "| `%s` | %s | %s%s |\n", fieldPath, typeOf(field), what, rules(field))
		below(text, fieldPath, field)
	}
}

// below writes rows for the fields inside a list, map or object.
func below(text *bytes.Buffer, fieldPath string, field apiextensions.JSONSchemaProps) {
	switch {
	case field.Items != nil && field.Items.Schema != nil:
		below(text, fieldPath+"[]", *field.Items.Schema)
	case field.AdditionalProperties != nil && field.AdditionalProperties.Schema != nil:
		below(text, fieldPath+"{}", *field.AdditionalProperties.Schema)
	}
	fields(text, fieldPath, field)
}

func typeOf(field apiextensions.JSONSchemaProps) string {
	switch {
	case field.XIntOrString:
		return "number or string"
	case field.Items != nil && field.Items.Schema != nil:
		return "list of " + typeOf(*field.Items.Schema)
	case field.AdditionalProperties != nil && field.AdditionalProperties.Schema != nil:
		return "map of " + typeOf(*field.AdditionalProperties.Schema)
	case field.Type == "":
		return "any"
	}
	return field.Type
}

// rules describes the API server's checks for a field.
func rules(field apiextensions.JSONSchemaProps) string {
	var all []string
	if field.Default != nil {
		all = append(all, "Default: `"+string(field.Default.Raw)+"`.")
	}
	values, which := field.Enum, "One of "
	if field.Items != nil && field.Items.Schema != nil && len(field.Items.Schema.Enum) > 0 {
		values, which = field.Items.Schema.Enum, "Each item is one of "
	}
	if len(values) > 0 {
		var texts []string
		for _, value := range values {
			texts = append(texts, "`"+string(value.Raw)+"`")
		}
		all = append(all, which+strings.Join(texts, ", ")+".")
	}
	if field.Pattern != "" {
		all = append(all, "Matches `"+strings.ReplaceAll(field.Pattern, "|", `\|`)+"`.")
	}
	for _, limit := range []struct {
		value *int64
		text  string
	}{{field.MinLength, "At least %d characters."}, {field.MaxLength, "At most %d characters."},
		{field.MinItems, "At least %d."}, {field.MaxItems, "At most %d."}, {field.MaxProperties, "At most %d."}} {
		if limit.value != nil && *limit.value > 0 {
			all = append(all, fmt.Sprintf(limit.text, *limit.value))
		}
	}
	refusals := field.XValidations
	if field.Items != nil && field.Items.Schema != nil {
		refusals = slices.Concat(refusals, field.Items.Schema.XValidations)
	}
	for _, rule := range refusals {
		all = append(all, `Validation error: "`+oneLine(rule.Message)+`".`)
	}
	if len(all) == 0 {
		return ""
	}
	return " " + strings.Join(all, " ")
}

func oneLine(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}
