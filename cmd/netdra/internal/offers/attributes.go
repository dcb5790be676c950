package offers

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// explainAttributes returns the attributes that an entry's policy adds.
func explainAttributes(entry *draslices.Entry) []ExplainedAttribute {
	var explained []ExplainedAttribute
	for _, source := range entry.Persona.AttributeSources {
		attribute := ExplainedAttribute{Name: string(source.Name), Source: source.Source, Absent: source.Absent}
		if value, has := entry.Persona.AdditionalAttributes[source.Name]; has {
			attribute.Value = attributeText(value)
		}
		explained = append(explained, attribute)
	}
	return explained
}

// attributesText lists the attributes that an entry's policy adds. The order is fixed, because changes are found by
// comparing such texts.
func attributesText(entry *draslices.Entry) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(entry.Persona.AdditionalAttributes)) {
		all = append(all, fmt.Sprintf("%s=%s", name, attributeText(entry.Persona.AdditionalAttributes[name])))
	}
	return strings.Join(all, " ")
}

// attributeText returns the value in YAML syntax. It distinguishes "7" from 7, because constraints do.
func attributeText(value resourceapi.DeviceAttribute) string {
	switch {
	case value.StringValue != nil:
		return strconv.Quote(*value.StringValue)
	case value.IntValue != nil:
		return fmt.Sprint(*value.IntValue)
	case value.BoolValue != nil:
		return fmt.Sprint(*value.BoolValue)
	case value.VersionValue != nil:
		return "version " + *value.VersionValue
	}
	return "a list"
}

// printAttributes prints the attributes that the policies for the entries add; nothing if there are none. Entries from
// the same policy have the same attributes.
func (e *Explanation) printAttributes(out *printer.Printer) {
	rows := [][]string{{"ATTRIBUTE", "VALUE", "POLICY", "FROM"}}
	seen := map[string]bool{}
	for i := range e.Entries {
		entry := &e.Entries[i]
		if seen[entry.Policy] {
			continue
		}
		seen[entry.Policy] = true
		for _, a := range entry.Attributes {
			value, source := a.Value, a.Source
			if a.Absent != "" {
				value, source = "-", a.Source+": "+a.Absent
			}
			rows = append(rows, []string{a.Name, value, entry.Policy, source})
		}
	}
	if len(rows) > 1 {
		out.Section("Attributes by policy")
		out.Table(rows)
	}
}
