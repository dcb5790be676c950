package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy/nearest"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// noteName records a name with which an expression compares ifName, pfName or interface.
func (w *walker) noteName(attribute, literal ast.Expr, vars scope) {
	a, ok := valueOf(attribute, vars)
	name, isString := stringLiteral(resolve(literal, vars))
	if ok && isString && !a.capacity && !a.computed && a.domain == v1alpha1.AttributeDomain &&
		slices.Contains([]string{"ifName", "pfName", "interface"}, a.id) {
		w.names = append(w.names, name)
	}
}

// NearNames returns hints for an expression that matches none of the devices: the names in the expression that resemble
// the name of a device. It is for users who inspect a single machine. Nodes do not use it, since policies for many
// nodes contain names that do not exist on every node. Names that only differ in digits, such as eth2 and eth0, are not
// considered similar, since they belong to different devices.
func NearNames(expression string, devices []discovery.Device) []string {
	w, err := walkStored(expression, compile)
	if err != nil {
		return nil // other checks report it
	}
	var names, said []string
	for i := range devices {
		names = append(names, string(devices[i].Name), string(devices[i].Interface))
	}
	for _, wanted := range w.names {
		near := nearest.Word(strings.TrimSpace(wanted), names)
		if near == "" || slices.Contains(names, wanted) || withoutDigits(near) == withoutDigits(wanted) {
			continue
		}
		if text := fmt.Sprintf("no device is called %q; there is %q", wanted, near); !slices.Contains(said, text) {
			said = append(said, text)
		}
	}
	return said
}

func withoutDigits(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, name)
}
