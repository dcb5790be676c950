package policy

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/dra-networking/dra-network-driver/policy/nearest"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// valueForm defines which strings are possible values of an attribute.
type valueForm struct {
	// holds reports whether a value is possible.
	holds func(value string) bool
	// repair returns the value that the user probably meant when writing an impossible value, or "" if there is none.
	repair func(value string) string
	// example describes the format of the values.
	example string
}

var (
	pciAddress = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`)
	pciID      = regexp.MustCompile(`^[0-9a-f]{4}$`)
)

// formOf returns the form of the values of one of the driver's string attributes, or nil if any string is possible. The
// value that represents absence is always possible.
func formOf(a access) *valueForm {
	if a.capacity || a.computed {
		return nil
	}
	id := a.id
	switch {
	case a.qualifiedName() == deviceattribute.StandardDeviceAttributePCIBusID:
		id = "pciAddress"
	case a.domain != v1alpha1.AttributeDomain:
		return nil
	}
	switch id {
	case "type", "kind", "masterKind": // the kernel has many kinds of links, none with an uppercase letter
		return &valueForm{holds: isLower, repair: strings.ToLower, example: "a kind in lower case"}
	case "pciAddress", "pfAddress":
		return &valueForm{holds: pciAddress.MatchString, repair: longPCIAddress,
			example: "an address with its domain in lower case, such as 0000:03:00.2"}
	case "vendor", "product":
		return &valueForm{holds: pciID.MatchString, repair: shortPCIID,
			example: "the PCI ID: four hexadecimal digits in lower case, such as 15b3"}
	case "mac", "vfMAC":
		return &valueForm{holds: func(value string) bool { return usualMAC(value) == value }, repair: usualMAC,
			example: "an address in lower case with colons, such as 02:00:00:00:00:01"}
	case "altNames", "rdmaDevices":
		return &valueForm{holds: inCommas, example: "a list with a comma before and after each name: search for a " +
			"name with " +
			a.field(".") + `.contains(",NAME,")`}
	}
	return oneOf(map[string][]string{
		// As printed by netlink.LinkOperState.
		"operState":  {"unknown", "not-present", "down", "lower-layer-down", "testing", "dormant", "up"},
		"bridgeType": {"linux", "ovs"}, "rdmaLinkLayer": {"ethernet", "infiniband"},
		"rdmaNetns": {"shared", "exclusive"}, "eswitchMode": {"legacy", "switchdev"},
		"vfLinkState": {"auto", "enable", "disable"},
	}[id])
}

// oneOf returns the form of an attribute with these values, or nil if there are none.
func oneOf(values []string) *valueForm {
	if len(values) == 0 {
		return nil
	}
	return &valueForm{
		holds:   func(value string) bool { return slices.Contains(values, value) },
		repair:  func(value string) string { return nearest.Word(strings.ToLower(value), values) },
		example: "one of " + strings.Join(values, ", "),
	}
}

func isLower(value string) bool { return value == strings.ToLower(value) }

func inCommas(value string) bool {
	return len(value) > 1 && strings.HasPrefix(value, ",") && strings.HasSuffix(value, ",")
}

// longPCIAddress adds the PCI domain to an address that tools print without it (see option -D in the manual of lspci).
func longPCIAddress(value string) string {
	for _, address := range []string{strings.ToLower(value), "0000:" + strings.ToLower(value)} {
		if pciAddress.MatchString(address) {
			return address
		}
	}
	return ""
}

// shortPCIID removes the prefix 0x, as found in sysfs files.
func shortPCIID(value string) string {
	if id := strings.TrimPrefix(strings.ToLower(value), "0x"); pciID.MatchString(id) {
		return id
	}
	return ""
}

// usualMAC returns an address in the format used by the kernel's tools, or "" if it is not valid.
func usualMAC(value string) string {
	address, err := net.ParseMAC(value)
	if err != nil {
		return ""
	}
	return address.String()
}

// noteValue records a remark if an attribute is compared with an impossible string.
func (w *walker) noteValue(attribute, literal ast.Expr, vars scope) {
	a, isAttribute := valueOf(attribute, vars)
	value, isString := stringLiteral(resolve(literal, vars))
	if isString && value != v1alpha1.AttributeDomain && isField(resolve(attribute, vars), "driver", vars) {
		w.addRemark(fmt.Sprintf("device.driver is %q for every device of this driver, and never %q: did you mean %s, "+
			"the driver of the kernel?", v1alpha1.AttributeDomain, value,
			access{domain: v1alpha1.AttributeDomain, id: "driver"}.field(".")))
	}
	form := formOf(a)
	if !isAttribute || !isString || value == "" || form == nil || form.holds(value) {
		return
	}
	remark := fmt.Sprintf("%s is never %q", a.field("."), value)
	repaired := ""
	if form.repair != nil {
		repaired = form.repair(value)
	}
	if repaired != "" {
		remark += fmt.Sprintf(": did you mean %q?", repaired)
	} else {
		remark += ", it is " + form.example
	}
	w.addRemark(remark)
}

func (w *walker) addRemark(remark string) {
	if !slices.Contains(w.values, remark) {
		w.values = append(w.values, remark)
	}
}

// valueRemarks returns remarks about comparisons in a valid expression that are never true. They are not errors, since
// another driver or a later version may publish other values.
func valueRemarks(expression string) []string {
	s, err := compile(expression, environment.StoredExpressions)
	if err != nil {
		return nil // other checks report it
	}
	w, err := s.walked()
	if err != nil {
		return nil // impossible, since the expression compiles
	}
	return w.values
}
