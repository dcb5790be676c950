package cnichain

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/dra-networking/dra-network-driver/cnichain/internal/template"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// parameters checks values in a plugin's configuration.
type parameters struct {
	templates template.Engine
	given     []string          // parameters that the driver sets
	remedies  map[string]string // suggested fixes for missing parameters, by name
	add       func(*field.Error)
}

// object checks an object with known fields. owner is the plugin that defines the parameters.
func (p *parameters) object(path *field.Path, object map[string]any, accepted *v1alpha1.Parameter, owner string) {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		value := object[name]
		parameter, known := accepted.Properties[name]
		switch {
		case known:
			p.value(path.Child(name), value, &parameter, owner)
		case accepted.AdditionalProperties != nil:
			p.value(path.Key(name), value, accepted.AdditionalProperties, owner)
		case len(accepted.Properties) > 0:
			p.add(field.Invalid(path.Child(name), field.OmitValueType{}, unknownParameter(owner, accepted)))
		}
	}
	for _, name := range accepted.Required {
		if object[name] == nil && !slices.Contains(p.given, name) {
			problem := fmt.Sprintf("%s does not work without it", owner)
			if remedy := p.remedies[name]; remedy != "" {
				problem += ": " + remedy
			}
			p.add(field.Required(path.Child(name), problem))
		}
	}
}

func unknownParameter(owner string, accepted *v1alpha1.Parameter) string {
	known := slices.Sorted(maps.Keys(accepted.Properties))
	return fmt.Sprintf("%s has no parameter of that name; it has %s", owner, strings.Join(known, ", "))
}

// value checks one value. As in plugins, null is treated as missing.
func (p *parameters) value(path *field.Path, value any, parameter *v1alpha1.Parameter, owner string) {
	if value == nil || parameter.Type == "" {
		return
	}
	if text, isText := value.(string); isText && p.templates.HasTokens(text) {
		p.template(path, text, parameter)
		return
	}
	switch value := value.(type) {
	case map[string]any:
		if p.checkType(path, value, v1alpha1.TypeObject, parameter) {
			nested := parameters{templates: p.templates, add: p.add} // the driver sets keys only at the top level
			nested.object(path, value, parameter, owner)
		}
	case []any:
		if p.checkType(path, value, v1alpha1.TypeArray, parameter) && parameter.Items != nil {
			for i, item := range value {
				p.value(path.Index(i), item, parameter.Items, owner)
			}
		}
	case string:
		if p.checkType(path, value, v1alpha1.TypeString, parameter) {
			p.text(path, value, parameter)
		}
	case bool:
		p.checkType(path, value, v1alpha1.TypeBoolean, parameter)
	case json.Number:
		p.number(path, value, parameter)
	}
}

// checkType reports whether a value has its parameter's type, and adds an error if it does not.
func (p *parameters) checkType(
	path *field.Path, value any, given v1alpha1.ParameterType, parameter *v1alpha1.Parameter,
) bool {
	if parameter.Type == given {
		return true
	}
	p.add(field.Invalid(path, shown(value), fmt.Sprintf("is %s, must be %s", describeType(given),
		wantedType(parameter))))
	return false
}

// shown returns a value for use in a message. It omits objects and lists, since the message already contains their
// path.
func shown(value any) any {
	switch value.(type) {
	case map[string]any, []any:
		return field.OmitValueType{}
	}
	return value
}

// describeType returns the name of a type in terms that are familiar to authors of YAML.
func describeType(t v1alpha1.ParameterType) string {
	switch t {
	case v1alpha1.TypeInteger:
		return "a whole number"
	case v1alpha1.TypeArray:
		return "a list"
	case v1alpha1.TypeObject:
		return "an object"
	case v1alpha1.TypeBoolean:
		return "true or false"
	}
	return "a " + string(t)
}

// wantedType describes a parameter's type, with a hint about quotes.
func wantedType(parameter *v1alpha1.Parameter) string {
	switch {
	case len(parameter.Enum) > 0:
		return fmt.Sprintf("one of the strings %q, in quotes", parameter.Enum)
	case parameter.Type == v1alpha1.TypeString:
		return "a string, in quotes"
	case parameter.Type == v1alpha1.TypeInteger || parameter.Type == v1alpha1.TypeNumber ||
		parameter.Type == v1alpha1.TypeBoolean:
		return describeType(parameter.Type) + ", without quotes"
	}
	return describeType(parameter.Type)
}

// text checks a string against the allowed values, the pattern and the format of its parameter.
func (p *parameters) text(path *field.Path, text string, parameter *v1alpha1.Parameter) {
	if len(parameter.Enum) > 0 && !slices.Contains(parameter.Enum, text) {
		p.add(field.NotSupported(path, text, parameter.Enum))
	}
	pattern, err := regexp.Compile(parameter.Pattern)
	if err == nil && !pattern.MatchString(text) { // the schema's validation reports an invalid pattern
		p.add(field.Invalid(path, text, "must match "+parameter.Pattern))
	}
	if problem := formatProblem(parameter.Format, text); problem != "" {
		p.add(field.Invalid(path, text, problem))
	}
}

// formatProblem returns the reason why a string does not match a format. It returns "" if the string matches, or if
// this program does not support the format. Addresses are parsed with netip, as in the rest of the driver. It rejects
// leading zeros, because programs interpret them in different ways.
func formatProblem(format v1alpha1.ParameterFormat, text string) string {
	switch format {
	case v1alpha1.FormatIP:
		if address, err := netip.ParseAddr(text); err != nil || address.Zone() != "" {
			return "must be an IP address, such as 10.1.0.5 or fd00::5"
		}
	case v1alpha1.FormatCIDR:
		if _, err := netip.ParsePrefix(text); err != nil {
			return "must be an address with a prefix length, such as 10.1.0.0/24 or fd00::/64"
		}
	case v1alpha1.FormatMAC:
		if mac, err := net.ParseMAC(text); err != nil || len(mac) != 6 || strings.Count(text, ":") != 5 {
			return "must be a MAC address, such as 02:00:00:00:00:05"
		}
	}
	return ""
}

// number checks a number as plugins do: an integer must not have a fraction or an exponent.
func (p *parameters) number(path *field.Path, number json.Number, parameter *v1alpha1.Parameter) {
	if parameter.Type == v1alpha1.TypeInteger {
		_, err := strconv.ParseInt(number.String(), 10, 64)
		if errors.Is(err, strconv.ErrRange) {
			p.add(field.Invalid(path, number, "is too large: it must fit into 64 bits"))
			return
		}
		if err != nil {
			p.add(field.Invalid(path, number, "is not a whole number"))
			return
		}
	} else if !p.checkType(path, number, v1alpha1.TypeNumber, parameter) {
		return
	}
	value, err := number.Float64()
	if err != nil {
		p.add(field.Invalid(path, number, "is too large"))
		return
	}
	if parameter.Minimum != nil && value < float64(*parameter.Minimum) {
		p.add(field.Invalid(path, number, fmt.Sprintf("must be at least %d", *parameter.Minimum)))
	}
	if parameter.Maximum != nil && value > float64(*parameter.Maximum) {
		p.add(field.Invalid(path, number, fmt.Sprintf("must be at most %d", *parameter.Maximum)))
	}
}

// template checks the type of a template's result, since the value itself is known only for a pod. A device attribute
// may have any of the attribute types, depending on the device.
func (p *parameters) template(path *field.Path, text string, parameter *v1alpha1.Parameter) {
	yields := []v1alpha1.ParameterType{v1alpha1.TypeString}
	rendered, err := p.templates.Render(text, "", func(t template.Token) (any, error) {
		switch {
		case t.Root == template.VarDevice, t.IsCapacity():
			return json.Number("0"), nil
		case t.Field == template.FieldInterfaces && t.Root != template.VarPod && t.Root != template.VarClaim &&
			t.Root != template.VarNode:
			return []any{"net1"}, nil
		}
		return "name", nil
	})
	if err != nil {
		return // reported with the other template problems
	}
	switch rendered.(type) {
	case json.Number:
		yields = []v1alpha1.ParameterType{v1alpha1.TypeString, v1alpha1.TypeInteger, v1alpha1.TypeNumber,
			v1alpha1.TypeBoolean}
	case []any:
		yields = []v1alpha1.ParameterType{v1alpha1.TypeArray}
		if parameter.Items != nil && parameter.Items.Type != "" && parameter.Items.Type != v1alpha1.TypeString {
			p.add(field.Invalid(path, text,
				"yields a list of strings, must be a list of which each item is "+describeType(parameter.Items.Type)))
			return
		}
	}
	if !slices.Contains(yields, parameter.Type) {
		p.add(field.Invalid(path, text, fmt.Sprintf("yields %s, must be %s", describeType(yields[0]),
			describeType(parameter.Type))))
	}
}
