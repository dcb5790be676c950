package importer

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// never is the term for a restriction that cannot be translated. It is better for a policy to offer nothing until the
// user replaces the term than to offer more devices than the original.
const never = "false"

// attribute returns the CEL expression for an attribute. Policies are evaluated on facts, where every device has all
// attributes, so no presence test is needed. Only the term from ofResource needs a presence test, because it becomes
// part of a class.
func attribute(name string) string {
	return fmt.Sprintf("device.attributes[%q].%s", policyapi.AttributeDomain, name)
}

// isOneOf returns a term that is true if a string attribute has one of the given values.
func isOneOf(name string, values []string) string {
	quoted := make([]string, len(values))
	for i, value := range values {
		quoted[i] = strconv.Quote(value)
	}
	if len(quoted) == 1 {
		return attribute(name) + " == " + quoted[0]
	}
	return attribute(name) + " in [" + strings.Join(quoted, ", ") + "]"
}

// allOf joins terms with "&&".
func allOf(terms []string) string { return join(terms, " && ", "||") }

// anyOf joins terms with "||".
func anyOf(terms []string) string { return join(terms, " || ", "&&") }

// join adds parentheses around terms that contain the other operator. A single term is returned unchanged, because the
// caller does not combine it with other terms.
func join(terms []string, operator, other string) string {
	if len(terms) == 1 {
		return terms[0]
	}
	bracketed := make([]string, len(terms))
	for i, term := range terms {
		bracketed[i] = term
		if strings.Contains(term, other) {
			bracketed[i] = "(" + term + ")"
		}
	}
	return strings.Join(bracketed, operator)
}

// ofNICs returns the term that selects functions by NIC. Each element of nics has the form "NIC", or "NIC#0-3,5" with
// the indexes of functions. parent is the attribute with a function's NIC, and index is the attribute with a function's
// index. For elements without indexes, the term also selects the NIC itself, whose name is in the attribute device,
// unless device is empty. Addresses are compared as strings, so they are converted to the format used in sysfs.
func ofNICs(nics []string, parent, device, index string) (string, error) {
	var terms, whole []string
	for _, text := range nics {
		nic, ranges, hasRanges := strings.Cut(text, "#")
		if parent == "pfAddress" {
			nic = pciAddress(nic)
		}
		if !hasRanges {
			whole = append(whole, nic)
			continue
		}
		indexes, err := indexesOf(ranges, attribute(index))
		if err != nil {
			return "", fmt.Errorf("%q: %w", text, err)
		}
		terms = append(terms, allOf([]string{isOneOf(parent, []string{nic}), indexes}))
	}
	if len(whole) > 0 {
		terms = append(terms, isOneOf(parent, whole))
		if device != "" {
			terms = append(terms, isOneOf(device, whole))
		}
	}
	return anyOf(terms), nil
}

// indexesOf returns the term that selects functions by index. The indexes have the form "0-3,5".
func indexesOf(text, index string) (string, error) {
	var terms, single []string
	for _, part := range strings.Split(text, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		low, err := strconv.ParseUint(first, 10, 32)
		if err != nil {
			return "", fmt.Errorf("%q is not an index of a function", part)
		}
		if !isRange {
			single = append(single, strconv.FormatUint(low, 10))
			continue
		}
		high, err := strconv.ParseUint(last, 10, 32)
		if err != nil || high < low {
			return "", fmt.Errorf("%q is not a range of indexes of functions", part)
		}
		terms = append(terms, fmt.Sprintf("%s >= %d && %s <= %d", index, low, index, high))
	}
	if len(single) > 0 {
		terms = append(terms, fmt.Sprintf("%s in [%s]", index, strings.Join(single, ", ")))
	}
	return anyOf(terms), nil
}

var addressInDomain = regexp.MustCompile(`^[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]$`)

// pciAddress adds the domain to a PCI address that has none.
func pciAddress(text string) string {
	if addressInDomain.MatchString(text) {
		text = "0000:" + text
	}
	return strings.ToLower(text)
}

// pciID converts a PCI ID to the format used in sysfs.
func pciID(text string) string { return strings.TrimPrefix(strings.ToLower(text), "0x") }

// each returns the result of convert for each of the texts.
func each(texts []string, convert func(string) string) []string {
	converted := make([]string, len(texts))
	for i := range texts {
		converted[i] = convert(texts[i])
	}
	return converted
}

// noNameRunes matches sequences of characters that are not allowed in the names of objects and steps.
var noNameRunes = regexp.MustCompile(`[^a-z0-9]+`)

// objectName converts any text to an object name. It truncates names to 40 bytes, so that they still fit in a label
// with a suffix, such as the number of a second object or the step of a class.
func objectName(parts ...string) string {
	name := strings.ToLower(strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), "-"))
	name = noNameRunes.ReplaceAllString(name, "-")
	return strings.Trim(name[:min(len(name), 40)], "-")
}
