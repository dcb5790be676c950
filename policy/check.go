package policy

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// Check returns all errors in a policy, including errors in its expressions. If the policy is valid, it returns remarks
// for the author instead. It is for components that accept policies. Nodes are more lenient: they apply the usable
// parts of a policy.
func Check(p *v1alpha1.DeviceExposurePolicy) (problems field.ErrorList, remarks []string) {
	problems = v1alpha1.Validate(p)
	match, problem := checkSelectorOf(p)
	if problem != nil {
		problems = append(problems, problem)
	}
	problems = append(problems, checkComputed(p)...)
	if len(problems) > 0 {
		return problems, nil
	}
	remarks = v1alpha1.Remarks(p)
	if match == likeAny {
		remarks = append(remarks, "the expression selects links of every type, including the host ends of pod interfaces: "+
			`add && device.attributes["dra.networking"].type in [...] with the intended types`)
	}
	return nil, remarks
}

// checkSelectorOf returns the error in a policy's selector, or, if the selector is valid, how it matches veths.
func checkSelectorOf(p *v1alpha1.DeviceExposurePolicy) (vethMatch, *field.Error) {
	location, expression := field.NewPath("spec", "selector", "cel"), p.Spec.Selector.CEL
	if strings.TrimSpace(expression) == "" {
		return noVeths, nil // Validate reports the missing selector
	}
	if err := CheckSelector(expression); err != nil {
		return noVeths, field.Invalid(location, expression, strings.TrimRight(err.Error(), "\n"))
	}
	if p.Spec.Action == v1alpha1.ActionExclude {
		return noVeths, nil
	}
	match := matchOfVeths(expression)
	if match == byType {
		return match, field.Invalid(location, expression,
			"selects veths by their type, and therefore also the host ends of pod interfaces: "+
				`name the intended ones, as in device.attributes["dra.networking"].ifName == "uplink0"`)
	}
	return match, nil
}

type vethMatch int

const (
	noVeths vethMatch = iota
	// byType: the expression matches veths because their type is veth.
	byType
	// likeAny: the expression matches veths in the same way as links of any other type.
	likeAny
)

// matchOfVeths evaluates a valid expression for typical pod veths, and for links that differ from them only in type.
func matchOfVeths(expression string) vethMatch {
	match := noVeths
	for _, master := range []discovery.IfName{"", "cni0"} {
		veth := discovery.Device{Name: "veth0a1b2c3d", Type: "veth", Kind: "veth", Master: master, MTU: 1500,
			OperState: "up", AdminUp: true,
			Carrier: true, VFIndex: discovery.None, NUMANode: discovery.None, VLANID: discovery.None}
		if master != "" {
			veth.MasterKind = "bridge"
		}
		other := veth
		other.Type, other.Kind = "another", "another"
		switch {
		case selects(expression, veth) && !selects(expression, other):
			return byType
		case selects(expression, veth):
			match = likeAny
		}
	}
	return match
}

// selects reports whether an expression is true for a device, evaluating it exactly as a node would.
func selects(expression string, device discovery.Device) bool {
	p := v1alpha1.DeviceExposurePolicy{Spec: v1alpha1.DeviceExposurePolicySpec{
		Action: v1alpha1.ActionExclude, Selector: v1alpha1.DeviceSelector{CEL: expression}}}
	decision := Resolve(discovery.Facts{Devices: []discovery.Device{device}}, []v1alpha1.DeviceExposurePolicy{p},
		Node{})
	return decision.Devices[0].Reasons[0].Outcome == Excludes
}
