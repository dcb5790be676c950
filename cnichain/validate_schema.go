package cnichain

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// maxDepth is the maximum nesting depth of parameters.
const maxDepth = 8

// maxRemark is the maximum length of a remark in characters. A remark of this length fits into an API server warning
// together with the plugin's type. The API server may truncate warnings longer than 256 characters.
const maxRemark = 180

// remarkForm excludes characters that would split a remark or affect the terminal that displays it. The CRD has the
// same pattern.
//
//nolint:gochecknoglobals // immutable
var remarkForm = regexp.MustCompile(`^[^\p{C}\p{Zl}\p{Zp}]*$`)

// hostPathForm is the CRD's pattern for host paths.
var hostPathForm = regexp.MustCompile(`^(/[^/]+)+$`) //nolint:gochecknoglobals // immutable

// linkTypeForm is the CRD's pattern for link types.
//
//nolint:gochecknoglobals // immutable
var linkTypeForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)

// ValidateSchema reports all problems in a contract. It repeats the CRD's rules, since contracts may also be read from
// files, and validates nested parameters, which the CRD cannot do.
func ValidateSchema(spec *v1alpha1.CNIPluginSchemaSpec) field.ErrorList {
	s := &schemaProblems{}
	path := field.NewPath("spec")
	if err := CheckBinaryName(spec.CNIType); err != nil {
		s.add(field.Invalid(path.Child("cniType"), spec.CNIType, err.Error()))
	}
	for i, parameter := range spec.DeviceParameters {
		parameterPath := path.Child("deviceParameters").Index(i)
		if parameter.Parameter == "" {
			s.add(field.Required(parameterPath.Child("parameter"), "name the key in the plugin's configuration"))
		}
		s.oneOf(parameterPath.Child("attribute"), parameter.Attribute, attributeIfName, attributePCIAddress,
			attributeAuxiliary)
	}
	input, output := path.Child("input"), path.Child("output")
	s.oneOf(input.Child("prevResult"), cmp.Or(spec.Input.PrevResult, prevResultNone), prevResultNone,
		prevResultOptional, prevResultRequired)
	s.count(input.Child("interfaces"), spec.Input.Interfaces)
	s.oneOf(output.Child("interfaces"), cmp.Or(spec.Output.Interfaces, interfacesAppends),
		interfacesAppends, interfacesModifies, interfacesPassthrough, interfacesNone, interfacesDeviceFiles)
	s.oneOf(output.Child("devices"), cmp.Or(spec.Output.Devices, devicesStay), devicesStay, devicesMove)
	s.oneOf(path.Child("quirks", "delWithoutNetns"), cmp.Or(spec.Quirks.DelWithoutNetns, DelNetnsEmpty), DelNetnsEmpty,
		DelNetnsStalePath, DelNetnsSkip)
	for i, capability := range spec.Capabilities {
		s.oneOf(path.Child("capabilities").Index(i), string(capability), string(v1alpha1.CapabilityMAC),
			string(v1alpha1.CapabilityIPs))
	}
	s.addressBlocks(path.Child("addressBlocks"), spec.AddressBlocks)
	for i, hostPath := range spec.HostPaths {
		if !hostPathForm.MatchString(hostPath) {
			s.add(field.Invalid(path.Child("hostPaths").Index(i), hostPath, "must be an absolute path without an "+
				"empty part, such as /etc/cni/net.d"))
		}
	}
	for i, linkType := range spec.LinkTypes {
		if !linkTypeForm.MatchString(linkType) {
			s.add(field.Invalid(path.Child("linkTypes").Index(i), linkType, "must be a type as \"ip -details link\" "+
				"shows it, such as vlan"))
		}
	}
	s.podNetworks(path.Child("podNetworks"), spec)
	s.remark(path.Child("remark"), spec.Remark)
	if spec.Config != nil {
		s.properties(path.Child("config"), spec.Config.Properties, spec.Config.Required, 0)
	}
	return s.problems
}

// Patterns are compiled whenever a schema is validated or used, so their number and cost are limited.
const (
	// maxPatterns is the maximum number of patterns in a schema.
	maxPatterns = 300
	// maxPatternCost is the maximum cost of a pattern, which is approximately the number of instructions in the
	// compiled pattern.
	maxPatternCost = 2000
)

type schemaProblems struct {
	problems field.ErrorList
	// patterns is the number of patterns in the schema.
	patterns int
}

func (s *schemaProblems) add(problem *field.Error) { s.problems = append(s.problems, problem) }

func (s *schemaProblems) oneOf(path *field.Path, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		s.add(field.NotSupported(path, value, allowed))
	}
}

// addressBlocks requires distinct keys: if two values had the same key, the plugin would receive only one of them.
func (s *schemaProblems) addressBlocks(path *field.Path, blocks *v1alpha1.AddressBlocks) {
	if blocks == nil {
		return
	}
	if blocks.Parameter == "" {
		s.add(field.Required(path.Child("parameter"), "name the key in the plugin's configuration"))
	}
	seen := map[string]bool{}
	for _, key := range []struct{ field, value string }{
		{"network", blocks.Network}, {"first", blocks.First}, {"last", blocks.Last},
	} {
		switch {
		case key.value == "":
			s.add(field.Required(path.Child(key.field), "name the key in a run of addresses"))
		case seen[key.value]:
			s.add(field.Duplicate(path.Child(key.field), key.value))
		}
		seen[key.value] = true
	}
}

func (s *schemaProblems) count(path *field.Path, count v1alpha1.InterfaceCount) {
	if count.Min != nil && count.Max != nil && *count.Min > *count.Max {
		s.add(field.Invalid(path, *count.Min, "min is greater than max: no number of interfaces would be allowed"))
	}
}

// podNetworks requires a valid annotation name and parameters that the driver itself does not set.
func (s *schemaProblems) podNetworks(path *field.Path, spec *v1alpha1.CNIPluginSchemaSpec) {
	networks := spec.PodNetworks
	if networks == nil {
		return
	}
	for _, problem := range validation.IsQualifiedName(networks.Annotation) {
		s.add(field.Invalid(path.Child("annotation"), networks.Annotation, problem))
	}
	if networks.Parameter == "" {
		s.add(field.Required(path.Child("parameter"), "set the parameter that names the network"))
	}
	s.oneOf(path.Child("interfaceNames"), cmp.Or(networks.InterfaceNames, namesAny), namesAny, namesSelected)
	for i, name := range networks.Defined {
		if problem := undefinable(name, spec); problem != "" {
			s.add(field.Invalid(path.Child("defined").Index(i), name, problem))
		}
	}
}

// undefinable returns the reason why a parameter's value must not come from a NetworkAttachmentDefinition, which
// namespace users may write: either the driver sets the parameter, or the parameter causes other plugins to run.
func undefinable(name string, spec *v1alpha1.CNIPluginSchemaSpec) string {
	_, reserved := reservedKeys()[name]
	_, common := commonParameters()[name]
	isDevice := slices.ContainsFunc(spec.DeviceParameters,
		func(parameter v1alpha1.DeviceParameter) bool { return parameter.Parameter == name })
	switch {
	case name == spec.PodNetworks.Parameter:
		return "is the parameter that names the network"
	case isDevice:
		return "names the device, which the driver sets"
	case reserved || common || name == "ipam":
		return "must not be set by networks: the driver or other plugins set it"
	case spec.Config != nil && !hasProperty(spec.Config, name):
		return "is not a parameter of the plugin: add it to config.properties"
	}
	return ""
}

func hasProperty(config *v1alpha1.PluginConfig, name string) bool {
	_, found := config.Properties[name]
	return found
}

func (s *schemaProblems) remark(path *field.Path, remark string) {
	if utf8.RuneCountInString(remark) > maxRemark {
		s.add(field.TooLong(path, field.OmitValueType{}, maxRemark))
	}
	if !remarkForm.MatchString(remark) {
		s.add(field.Invalid(path, remark, "must be one line of printable characters"))
	}
}

// properties checks an object's parameters, in order of their names. Every required parameter must be among them;
// otherwise, no configuration could be valid.
func (s *schemaProblems) properties(path *field.Path, properties map[string]v1alpha1.Parameter, required []string,
	depth int) {
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		parameter := properties[name]
		s.parameter(path.Child("properties").Key(name), &parameter, depth+1)
	}
	for i, name := range required {
		if _, known := properties[name]; !known {
			s.add(field.NotFound(path.Child("required").Index(i), fmt.Sprintf("%s (it is not among properties)", name)))
		}
	}
}

// parameter checks a parameter and its nested parameters. The depth is limited because the check is recursive and
// schemas are user input.
func (s *schemaProblems) parameter(path *field.Path, p *v1alpha1.Parameter, depth int) {
	if depth > maxDepth {
		s.add(field.TooMany(path, depth, maxDepth))
		return
	}
	if p.Unreadable != "" {
		s.add(field.Invalid(path, field.OmitValueType{}, p.Unreadable))
		return
	}
	for _, unknown := range p.Unknown {
		s.add(field.Invalid(path, field.OmitValueType{}, unknown+"; remove it"))
	}
	s.constraints(path, p)
	if p.Items != nil {
		s.parameter(path.Child("items"), p.Items, depth+1)
	}
	if p.AdditionalProperties != nil {
		s.parameter(path.Child("additionalProperties"), p.AdditionalProperties, depth+1)
	}
	s.properties(path, p.Properties, p.Required, depth)
}

// constraints rejects keywords that do not apply to the parameter's type.
func (s *schemaProblems) constraints(path *field.Path, p *v1alpha1.Parameter) {
	known := []v1alpha1.ParameterType{"", v1alpha1.TypeString, v1alpha1.TypeInteger, v1alpha1.TypeNumber,
		v1alpha1.TypeBoolean, v1alpha1.TypeArray, v1alpha1.TypeObject}
	if !slices.Contains(known, p.Type) {
		s.add(field.NotSupported(path.Child("type"), p.Type, known[1:]))
	}
	if (len(p.Enum) > 0 || p.Pattern != "" || p.Format != "") && p.Type != v1alpha1.TypeString {
		s.add(field.Invalid(path.Child("type"), p.Type, "enum, pattern and format are for strings: set type to "+
			"string, or remove them"))
	}
	formats := []v1alpha1.ParameterFormat{"", v1alpha1.FormatIP, v1alpha1.FormatCIDR, v1alpha1.FormatMAC}
	if !slices.Contains(formats, p.Format) {
		s.add(field.NotSupported(path.Child("format"), p.Format, formats[1:]))
	}
	if (p.Minimum != nil || p.Maximum != nil) && p.Type != v1alpha1.TypeInteger && p.Type != v1alpha1.TypeNumber {
		s.add(field.Invalid(path.Child("type"), p.Type, "minimum and maximum are for numbers: set type to integer or "+
			"number, or remove them"))
	}
	if p.Minimum != nil && p.Maximum != nil && *p.Minimum > *p.Maximum {
		s.add(field.Invalid(path.Child("minimum"), *p.Minimum, "minimum is greater than maximum: no value would be "+
			"allowed"))
	}
	if p.Items != nil && p.Type != v1alpha1.TypeArray {
		s.add(field.Invalid(path.Child("type"), p.Type, "items is for arrays: set type to array, or remove it"))
	}
	if (len(p.Properties) > 0 || len(p.Required) > 0 || p.AdditionalProperties != nil) &&
		p.Type != v1alpha1.TypeObject {
		s.add(field.Invalid(path.Child("type"), p.Type, "properties, additionalProperties and required are for "+
			"objects: set type to object, or remove them"))
	}
	s.pattern(path.Child("pattern"), p.Pattern)
}

// pattern checks a pattern, but does not compile it if that would be too expensive.
func (s *schemaProblems) pattern(path *field.Path, pattern string) {
	if pattern == "" {
		return
	}
	if s.patterns++; s.patterns > maxPatterns {
		if s.patterns == maxPatterns+1 {
			s.add(field.Forbidden(path, fmt.Sprintf("a schema has at most %d patterns: remove some", maxPatterns)))
		}
		return
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl) // like regexp.Compile
	if err != nil {
		s.add(field.Invalid(path, pattern, err.Error()))
		return
	}
	if cost := patternCost(parsed); cost > maxPatternCost {
		s.add(field.Invalid(path, pattern, fmt.Sprintf("costs %d, at most %d is allowed: reduce the repetitions "+
			"with {}", cost,
			maxPatternCost)))
	}
}

// patternCost estimates the number of instructions in a compiled pattern. The parser limits nested repetitions.
func patternCost(parsed *syntax.Regexp) int {
	cost := 1 + len(parsed.Rune)
	for _, sub := range parsed.Sub {
		cost += patternCost(sub)
	}
	if parsed.Op == syntax.OpRepeat {
		cost *= max(parsed.Min, parsed.Max, 1)
	}
	return cost
}
