package v1alpha1

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const maxRows = 256 // of the table of attributes

// Fields of an exposure that set attributes.
const (
	additionalAttributes   = "additionalAttributes"
	computedAttributes     = "computedAttributes"
	attributesByPCIAddress = "attributesByPCIAddress"
	resourceName           = "resourceName"
)

// validateAttributes checks the attributes that the policy adds, in whatever way.
func validateAttributes(e *Exposure, path *field.Path) field.ErrorList {
	errs := validateFixed(e.AdditionalAttributes, path.Child(additionalAttributes))
	errs = append(errs, validateComputed(e.ComputedAttributes, path.Child(computedAttributes))...)
	errs = append(errs, validateTable(e.AttributesByPCIAddress, path.Child(attributesByPCIAddress))...)
	errs = append(errs, validateResourceName(e.ResourceName, path.Child(resourceName))...)
	if len(errs) > 0 {
		return errs
	}
	return validateSources(e, path)
}

// validateSources checks that each attribute is set by one field only, and the total number of attributes. A value that
// another field replaces would be hard to find.
func validateSources(e *Exposure, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	sources := map[string]string{}
	if e.ResourceName != "" {
		sources[AttributeResourceName], sources[AttributeDeviceID] = resourceName, resourceName
	}
	for _, name := range slices.Sorted(maps.Keys(e.AdditionalAttributes)) {
		if other, taken := sources[QualifiedName(name)]; taken {
			errs = append(errs, field.Invalid(path.Child(additionalAttributes).Key(name), name,
				"is set by "+other+", too: remove one of them"))
		}
		sources[QualifiedName(name)] = additionalAttributes
	}
	for i, computed := range e.ComputedAttributes {
		location := path.Child(computedAttributes).Index(i).Child("name")
		if other, taken := sources[QualifiedName(computed.Name)]; taken {
			errs = append(errs, field.Invalid(location, computed.Name, "is set by "+other+", too: remove one of them"))
		}
		sources[QualifiedName(computed.Name)] = computedAttributes
	}
	for i, row := range e.AttributesByPCIAddress {
		for _, name := range slices.Sorted(maps.Keys(row.Attributes)) {
			other, taken := sources[QualifiedName(name)]
			if taken && other != attributesByPCIAddress {
				location := path.Child(attributesByPCIAddress).Index(i).Child("attributes").Key(name)
				errs = append(errs, field.Invalid(location, name, "is set by "+other+", too: remove one of them"))
			}
			sources[QualifiedName(name)] = cmp.Or(other, attributesByPCIAddress)
		}
	}
	if len(sources) > maxEntries {
		errs = append(errs, field.Invalid(path, len(sources), fmt.Sprintf(
			"%s, %s, %s and %s have %d names together, the limit is %d: remove some", resourceName,
			additionalAttributes, computedAttributes, attributesByPCIAddress, len(sources), maxEntries)))
	}
	return errs
}

// validateResourceName checks that the name is valid as the name of an extended resource and as an attribute.
func validateResourceName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return nil
	}
	var errs field.ErrorList
	domain, rest, _ := strings.Cut(name, "/")
	if len(validation.IsDNS1123Subdomain(domain)) > 0 || len(validation.IsQualifiedName(rest)) > 0 ||
		strings.Contains(rest, "/") {
		errs = append(errs, field.Invalid(path, name, "a resource name has a domain and a name, such as "+
			"example.com/sriov_vf"))
	}
	if len(name) > maxStringLength {
		errs = append(errs, explained(field.TooLong(path, "", maxStringLength), fmt.Sprintf(
			"has %d bytes, the limit is %d: shorten it", len(name), maxStringLength)))
	}
	return errs
}

// validateComputed checks computed attributes, but for their expressions, which need a compiler.
func validateComputed(computed []ComputedAttribute, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(computed) > maxEntries {
		errs = append(errs, field.TooMany(path, len(computed), maxEntries))
	}
	taken := map[string]bool{}
	for i, c := range computed {
		name, cel := path.Index(i).Child("name"), path.Index(i).Child("cel")
		if reason := attributeNameProblem(c.Name); reason != "" {
			errs = append(errs, field.Invalid(name, c.Name, reason))
		} else if taken[QualifiedName(c.Name)] {
			errs = append(errs, explained(field.Duplicate(name, QualifiedName(c.Name)), "name each attribute once"))
		}
		taken[QualifiedName(c.Name)] = true
		switch {
		case strings.TrimSpace(c.CEL) == "":
			errs = append(errs, field.Required(cel,
				`an expression over one device, for example device.attributes["dra.networking"].ifName`))
		case len(c.CEL) > maxCELLength:
			errs = append(errs, explained(field.TooLong(cel, "", maxCELLength), fmt.Sprintf(
				"has %d bytes, the limit is %d: shorten it, or use %s", len(c.CEL), maxCELLength,
				attributesByPCIAddress)))
		}
	}
	return errs
}

// validateTable checks the rows of the table of attributes. An attribute has one type in all of them: a claim's
// constraint finds that 1 and "1" differ.
func validateTable(rows []PCIAddressAttributes, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(rows) > maxRows {
		errs = append(errs, field.TooMany(path, len(rows), maxRows))
	}
	taken := map[string]bool{}
	types := map[string]string{}
	for i, row := range rows {
		address, values := path.Index(i).Child("pciAddress"), path.Index(i).Child("attributes")
		switch {
		case !isPCIAddress(row.PCIAddress):
			errs = append(errs, field.Invalid(address, row.PCIAddress, "must be domain:bus:device.function in "+
				"lower-case hexadecimal digits, as sysfs writes it, for example 0000:18:00.0"))
		case taken[row.PCIAddress]:
			errs = append(errs, explained(field.Duplicate(address, row.PCIAddress), "make one row of the two"))
		}
		taken[row.PCIAddress] = true
		if len(row.Attributes) == 0 {
			errs = append(errs, field.Required(values, "name an attribute and its value, or remove the row"))
		}
		errs = append(errs, validateFixed(row.Attributes, values)...)
		for _, name := range slices.Sorted(maps.Keys(row.Attributes)) {
			typeName, before := row.Attributes[name].typeName(), types[QualifiedName(name)]
			if before != "" && typeName != "" && typeName != before {
				errs = append(errs, field.Invalid(values.Key(name), row.Attributes[name], fmt.Sprintf(
					"is %s, but %s in an earlier row, and constraints do not compare different types: use one type",
					typeName, before)))
			}
			types[QualifiedName(name)] = cmp.Or(before, typeName)
		}
	}
	return errs
}

// typeName returns the type of the value with an article; empty if it has none.
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

// isPCIAddress reports whether s is an address as sysfs writes it. A domain may have more than four digits.
func isPCIAddress(s string) bool {
	ok, err := regexp.MatchString(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f][.][0-7]$`, s)
	return ok && err == nil
}

// validateFixed checks attributes with fixed values.
func validateFixed(attributes map[string]AttributeValue, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(attributes) > maxEntries {
		errs = append(errs, field.TooMany(path, len(attributes), maxEntries))
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		location := path.Key(name)
		if reason := attributeNameProblem(name); reason != "" {
			errs = append(errs, field.Invalid(location, name, reason))
		}
		if _, both := attributes[QualifiedName(name)]; both && name != QualifiedName(name) {
			errs = append(errs, explained(field.Duplicate(location, QualifiedName(name)), "a bare name is in "+
				AttributeDomain+": remove one of them"))
		}
		switch v := attributes[name]; {
		case v.String == nil && v.Int == nil && v.Bool == nil:
			errs = append(errs,
				field.Required(location, "write a string, an integer or a boolean, or remove the attribute"))
		case v.String != nil && len(*v.String) > maxStringLength:
			errs = append(errs, explained(field.TooLong(location, "", maxStringLength), fmt.Sprintf(
				"has %d bytes, the limit is %d: shorten it", len(*v.String), maxStringLength)))
		}
	}
	return errs
}

// attributeNameProblem returns why a policy may not add an attribute of this name; empty if it may.
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
