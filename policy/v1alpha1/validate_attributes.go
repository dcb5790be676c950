package v1alpha1

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const maxRows = 256 // in the attribute table

// These are the exposure fields that set attributes.
const (
	additionalAttributes   = "additionalAttributes"
	computedAttributes     = "computedAttributes"
	attributesByPCIAddress = "attributesByPCIAddress"
	resourceName           = "resourceName"
)

// attributes checks all attributes that the policy adds, whichever field sets them.
func (p *problems) attributes(e *Exposure, path *field.Path) {
	before := len(p.list)
	p.fixed(e.AdditionalAttributes, path.Child(additionalAttributes))
	p.computed(e.ComputedAttributes, path.Child(computedAttributes))
	p.table(e.AttributesByPCIAddress, path.Child(attributesByPCIAddress))
	p.resourceName(e.ResourceName, path.Child(resourceName))
	if len(p.list) == before {
		p.sources(e, path)
	}
}

// sources checks that no attribute is set by more than one field, and that there are not too many attributes in total.
// If one field could override another, a wrong value would be hard to trace.
func (p *problems) sources(e *Exposure, path *field.Path) {
	sources := map[string]string{}
	set := func(name, source string, location *field.Path) {
		other := sources[QualifiedName(name)]
		if other != "" && other != source {
			p.invalid(location, name, "is set by %s, too: remove one of them", other)
		}
		sources[QualifiedName(name)] = cmp.Or(other, source)
	}
	if e.ResourceName != "" {
		sources[AttributeResourceName], sources[AttributeDeviceID] = resourceName, resourceName
	}
	for _, name := range slices.Sorted(maps.Keys(e.AdditionalAttributes)) {
		set(name, additionalAttributes, path.Child(additionalAttributes).Key(name))
	}
	for i, computed := range e.ComputedAttributes {
		set(computed.Name, computedAttributes, path.Child(computedAttributes).Index(i).Child("name"))
	}
	for i, row := range e.AttributesByPCIAddress {
		for _, name := range slices.Sorted(maps.Keys(row.Attributes)) {
			location := path.Child(attributesByPCIAddress).Index(i).Child("attributes").Key(name)
			set(name, attributesByPCIAddress, location)
		}
	}
	if len(sources) > maxEntries {
		p.invalid(path, len(sources), "%s, %s, %s and %s have %d names together, the limit is %d: remove some", resourceName,
			additionalAttributes, computedAttributes, attributesByPCIAddress, len(sources), maxEntries)
	}
}

// resourceName checks that the name is valid both as the name of an extended resource and as an attribute value.
func (p *problems) resourceName(name string, path *field.Path) {
	if name == "" {
		return
	}
	domain, rest, _ := strings.Cut(name, "/")
	if len(validation.IsDNS1123Subdomain(domain)) > 0 || len(validation.IsQualifiedName(rest)) > 0 ||
		strings.Contains(rest, "/") {
		p.invalid(path, name, "a resource name has a domain and a name, such as example.com/sriov_vf")
	}
	p.tooLong(path, name, maxStringLength, "shorten it")
}

// computed checks computed attributes, except for their expressions, which require a compiler.
func (p *problems) computed(computed []ComputedAttribute, path *field.Path) {
	p.tooMany(path, len(computed), maxEntries)
	taken := map[string]bool{}
	for i, c := range computed {
		name, qualified := path.Index(i).Child("name"), QualifiedName(c.Name)
		if reason := attributeNameProblem(c.Name); reason != "" {
			p.invalid(name, c.Name, "%s", reason)
		} else if taken[qualified] {
			p.duplicate(name, qualified, "name each attribute once")
		}
		taken[qualified] = true
		p.expression(path.Index(i).Child("cel"), c.CEL, `device.attributes["dra.networking"].ifName`,
			"shorten it, or use "+attributesByPCIAddress)
	}
}

// table checks the rows of the attribute table. An attribute must have the same type in all rows, because constraints
// in claims treat 1 and "1" as different values.
func (p *problems) table(rows []PCIAddressAttributes, path *field.Path) {
	p.tooMany(path, len(rows), maxRows)
	taken := map[string]bool{}
	types := map[string]string{}
	for i, row := range rows {
		address, values := path.Index(i).Child("pciAddress"), path.Index(i).Child("attributes")
		switch {
		case !pciAddress.MatchString(row.PCIAddress):
			p.invalid(address, row.PCIAddress, "must be domain:bus:device.function in lower-case hexadecimal digits, "+
				"as sysfs writes it, for example 0000:18:00.0")
		case taken[row.PCIAddress]:
			p.duplicate(address, row.PCIAddress, "merge the two rows")
		}
		taken[row.PCIAddress] = true
		if len(row.Attributes) == 0 {
			p.add(field.Required(values, "name an attribute and its value, or remove the row"))
		}
		p.fixed(row.Attributes, values)
		p.sameTypes(types, row.Attributes, values)
	}
}

// sameTypes compares the types of the attributes in a row with those in earlier rows, and adds them to types.
func (p *problems) sameTypes(types map[string]string, attributes map[string]AttributeValue, path *field.Path) {
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		typeName, before := attributes[name].typeName(), types[QualifiedName(name)]
		if before != "" && typeName != "" && typeName != before {
			p.invalid(path.Key(name), attributes[name], "is %s, but %s in an earlier row, and constraints do not "+
				"compare different types: use one type", typeName, before)
		}
		types[QualifiedName(name)] = cmp.Or(before, typeName)
	}
}

// ValidateNodeAttributes returns the problems in a table of device attributes that a node reports. The rules are the
// same as for tables in policies, with three differences: a row may omit PCIAddress, attribute names must not be in the
// driver's domain, and strings must not be empty. Since empty strings match each other, two machines without a switch
// name would appear to share a switch.
func ValidateNodeAttributes(rows []PCIAddressAttributes, path *field.Path) field.ErrorList {
	var p problems
	p.tooMany(path, len(rows), maxRows)
	types := map[string]string{}
	for i, row := range rows {
		values := path.Index(i).Child("attributes")
		if row.PCIAddress != "" && !pciAddress.MatchString(row.PCIAddress) {
			p.invalid(path.Index(i).Child("pciAddress"), row.PCIAddress, "must be in the form of sysfs: 0000:18:00.0")
		}
		p.fixed(row.Attributes, values)
		p.sameTypes(types, row.Attributes, values)
		for _, name := range slices.Sorted(maps.Keys(row.Attributes)) {
			if strings.HasPrefix(QualifiedName(name), AttributeDomain+"/") {
				p.invalid(values.Key(name), name, "the domain %s belongs to the driver: use a domain of your own",
					AttributeDomain)
			}
			if s := row.Attributes[name].String; s != nil && *s == "" {
				p.invalid(values.Key(name), *s, "is empty: leave out an attribute whose value is unknown")
			}
		}
	}
	return p.list
}

// typeName returns the name of the value's type with an article, or "" if no value is set.
func (v AttributeValue) typeName() string {
	switch {
	case v.String != nil:
		return "a string"
	case v.Int != nil:
		return "an integer"
	case v.Bool != nil:
		return "a boolean"
	}
	return ""
}

// pciAddress matches an address in sysfs format. The domain may have more than four digits.
var pciAddress = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f][.][0-7]$`)

func (p *problems) fixed(attributes map[string]AttributeValue, path *field.Path) {
	p.tooMany(path, len(attributes), maxEntries)
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		location, qualified := path.Key(name), QualifiedName(name)
		if reason := attributeNameProblem(name); reason != "" {
			p.invalid(location, name, "%s", reason)
		}
		if _, both := attributes[qualified]; both && name != qualified {
			p.duplicate(location, qualified, "a bare name is in "+AttributeDomain+": remove one of them")
		}
		switch v := attributes[name]; {
		case v.typeName() == "":
			p.add(field.Required(location, "write a string, an integer or a boolean, or remove the attribute"))
		case v.String != nil:
			p.tooLong(location, *v.String, maxStringLength, "shorten it")
		}
	}
}

// attributeNameProblem returns the reason why a policy must not add an attribute with this name, or "" if it may.
func attributeNameProblem(name string) string {
	domain, id, _ := strings.Cut(QualifiedName(name), "/")
	switch {
	case !isID(id):
		return "the name after the domain must be letters, digits and '_', start with a letter or '_', and have at " +
			"most 32 characters"
	case len(domain) > maxDomainLength || len(validation.IsDNS1123Subdomain(domain)) > 0:
		return "the domain must be a DNS name of at most 63 characters"
	case domain == "k8s.io", domain == "kubernetes.io", strings.HasSuffix(domain, ".k8s.io"), strings.HasSuffix(domain,
		".kubernetes.io"):
		return "the domain belongs to Kubernetes: use a domain of your own, or a bare name"
	case domain == CNIDomain:
		return "the driver sets the attributes of this domain: name the plugin in supportedCNIPlugins"
	case domain == AttributeDomain && slices.Contains(DiscoveredNames(), id):
		return "the driver discovers this attribute: use another name"
	}
	return ""
}
