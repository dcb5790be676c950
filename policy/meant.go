package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy/nearest"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// namedDevice is a device name with which an expression compares an attribute.
type namedDevice struct{ attribute, name string }

// noteNames records comparisons of ifName, pfName or interface with names.
func (w *walker) noteNames(call ast.CallExpr, vars scope) {
	args := call.Args()
	switch call.FunctionName() {
	case operators.Equals:
		w.noteName(args[0], args[1], vars)
		w.noteName(args[1], args[0], vars)
	case operators.In:
		if list := resolve(args[1], vars); list.Kind() == ast.ListKind {
			for _, element := range list.AsList().Elements() {
				w.noteName(args[0], element, vars)
			}
		}
	}
}

func (w *walker) noteName(attribute, literal ast.Expr, vars scope) {
	a, ok := valueOf(attribute, vars)
	name, isString := stringLiteral(resolve(literal, vars))
	if ok && isString && !a.capacity && !a.computed && a.domain == v1alpha1.AttributeDomain &&
		slices.Contains([]string{"ifName", "pfName", "interface"}, a.id) {
		w.names = append(w.names, namedDevice{a.id, name})
	}
}

// probablyMeant returns advice for an expression that matches no device: the expression may contain a name that no
// device has in the compared attribute, but that a device has in another attribute. Names that do not occur on the node
// at all are ignored, since a policy applies to many nodes.
func (s selector) probablyMeant(devices []discovery.Device) []string {
	w, err := s.walked()
	if err != nil {
		return nil // impossible, since the expression compiles
	}
	var advice []string
	for _, wanted := range w.names {
		if said := wanted.advice(devices); said != "" && !slices.Contains(advice, said) {
			advice = append(advice, said)
		}
	}
	return advice
}

// NearNames returns hints for an expression that matches none of the devices: the names in it that are similar to the
// name of a device. It is for users who inspect a single machine. Nodes do not use it, since policies for many nodes
// contain names that do not exist on every node. Names that only differ in digits, such as eth2 and eth0, do not count
// as similar, since they belong to different devices.
func NearNames(expression string, devices []discovery.Device) []string {
	s, err := compile(expression, environment.StoredExpressions)
	if err != nil {
		return nil
	}
	w, err := s.walked()
	if err != nil {
		return nil // impossible, since the expression compiles
	}
	var names, said []string
	for i := range devices {
		names = append(names, string(devices[i].Name), string(devices[i].Interface))
	}
	for _, wanted := range w.names {
		near := nearest.Word(strings.TrimSpace(wanted.name), names)
		if near == "" || slices.Contains(names, wanted.name) || withoutDigits(near) == withoutDigits(wanted.name) {
			continue
		}
		if text := fmt.Sprintf("no device is called %q; there is %q", wanted.name, near); !slices.Contains(said, text) {
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

// advice returns a suggestion for replacing a name, or "" if a device has the name or no device is likely to be meant.
func (n namedDevice) advice(devices []discovery.Device) string {
	meant := -1
	for i := range devices {
		d := &devices[i]
		present := map[string]discovery.IfName{"ifName": d.Name, "pfName": d.PFName, "interface": d.Interface}
		if present[n.attribute] == discovery.IfName(n.name) {
			return ""
		}
		isCandidate := n.name != "" && (n.attribute != "pfName" || d.PFName == "")
		if meant < 0 && isCandidate && (string(d.Name) == n.name || string(d.Interface) == n.name ||
			slices.Contains(d.AltNames, n.name)) {
			meant = i
		}
	}
	if meant < 0 {
		return ""
	}
	d := &devices[meant]
	hasFunctions := slices.ContainsFunc(devices, func(f discovery.Device) bool { return f.PFName == d.Name })
	if n.attribute == "pfName" && !hasFunctions {
		return fmt.Sprintf("no device has the pfName %q, and the device %s has no virtual functions; only virtual "+
			"functions have a pfName; for the device itself write ifName == %q", n.name, d.Name, d.Name)
	}
	if n.attribute == "interface" {
		if d.Interface == "" {
			return fmt.Sprintf("no device has the interface %q; the device %s has that name but no interface at "+
				"present: write ifName == %q", n.name, d.Name, d.Name)
		}
		return fmt.Sprintf("no device has the interface %q; did you mean interface %s of device %s? Write "+
			"interface == %q, "+
			"or ifName == %q", n.name, d.Interface, d.Name, d.Interface, d.Name)
	}
	return fmt.Sprintf("no device has the %s %q; did you mean device %s with interface %s? Write %s == %q",
		n.attribute, n.name, d.Name, d.Interface, n.attribute, d.Name)
}
