package policy

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// Node describes the node that a decision is made for.
type Node struct {
	Name   string
	Labels map[string]string
}

// Resolve decides how each device on the node is offered. A device is hidden if any exclude policy matches it, or if no
// expose policy matches it. Otherwise, the matching policies are grouped by name suffix. In each group, the policy with
// the highest priority defines the device's entry; if several policies have the same priority, the policy whose name
// sorts first wins. An expose policy that is invalid, or whose expression fails for a device, does not match the
// device; an exclude policy whose expression fails for a device hides the device. Resolve does not modify its
// arguments.
func Resolve(facts discovery.Facts, policies []v1alpha1.DeviceExposurePolicy, node Node) Decision {
	decision, err := new(Resolver).Resolve(context.Background(), facts, policies, node)
	if err != nil {
		panic(err) // impossible: the context is never done
	}
	return decision
}

// Resolver makes a series of decisions, reusing the compiled expressions from the previous decision. Without this
// reuse, much of the time would be spent on compiling policies that have not changed. The zero value is ready to use. A
// Resolver must not be used concurrently.
type Resolver struct{ last map[written]compiled }

// Resolve is like the function Resolve, but stops when ctx is done. In that case, it returns an error rather than a
// partial decision, which would withdraw devices.
func (m *Resolver) Resolve(
	ctx context.Context, facts discovery.Facts, policies []v1alpha1.DeviceExposurePolicy, node Node,
) (Decision, error) {
	var decision Decision
	kept := &expressions{before: m.last, used: map[written]compiled{}}
	defer func() { m.last = kept.used }()
	rules := make([]*rule, 0, len(policies))
	for i := range policies {
		rules = append(rules, newRule(&policies[i], node, kept))
	}
	slices.SortFunc(rules, func(a, b *rule) int { return cmp.Compare(a.policy.Name, b.policy.Name) })
	devices := slices.SortedFunc(slices.Values(facts.Devices),
		func(a, b discovery.Device) int { return cmp.Compare(a.Name, b.Name) })
	asked, err := evaluate(ctx, devices, rules)
	if err != nil {
		return Decision{}, fmt.Errorf("cannot decide which devices are offered: %w", err)
	}
	shareAttributeCost(rules, len(devices))
	for i, answers := range asked {
		if err := context.Cause(ctx); err != nil {
			return Decision{}, fmt.Errorf("cannot decide which devices are offered: %w", err)
		}
		decision.Devices = append(decision.Devices, decide(devices[i], rules, answers))
	}
	for _, r := range rules {
		decision.Problems = append(append(decision.Problems, r.problems...), r.attributes.problems(r.policy.Name)...)
	}
	return decision, nil
}

// rule is a policy that has been prepared for a node.
type rule struct {
	policy *v1alpha1.DeviceExposurePolicy
	// elsewhere is true if the policy does not apply to this node.
	elsewhere bool
	// invalid is the reason why an expose policy has no effect.
	invalid  error
	selector selector
	// broken is the error if the policy has no usable selector.
	broken   error
	problems []Problem
	// evaluationFailed is true once a failure of the expression on a device has been recorded as a problem.
	evaluationFailed bool
	// attributes contains the attributes added by the policy.
	attributes attributeRules
	// expressions compiles the other expressions in the policy.
	expressions *expressions
}

func newRule(p *v1alpha1.DeviceExposurePolicy, node Node, kept *expressions) *rule {
	r := &rule{policy: p, expressions: kept}
	if here, err := SelectsNode(p, node); err == nil && !here {
		r.elsewhere = true
		return r
	}
	invalid := v1alpha1.Validate(p).ToAggregate()
	if invalid != nil {
		r.problem("", "is not valid: %v", invalid)
	}
	if !r.excludes() && invalid != nil {
		r.invalid = invalid
		return r
	}
	r.selector, r.broken = kept.compile(p.Spec.Selector.CEL, forSelector)
	switch {
	case r.broken != nil && r.excludes():
		r.problem("", "hides all devices of its nodes until its expression is corrected: %v", r.broken)
	case r.broken != nil:
		r.problem("", "exposes nothing: %v", r.broken)
	case !r.excludes() && !p.Spec.Exposure.AllowMultipleAllocations: // slices.Build reports shared devices
		for _, remark := range v1alpha1.Remarks(p) {
			r.problems = append(r.problems, Problem{Policy: p.Name, Message: remark, Remark: true})
		}
	}
	return r
}

// SelectsNode reports whether a policy applies to a node. It returns an error if the node selector is not valid.
func SelectsNode(p *v1alpha1.DeviceExposurePolicy, node Node) (bool, error) {
	if p.Spec.NodeSelector == nil {
		return true, nil
	}
	s, err := metav1.LabelSelectorAsSelector(p.Spec.NodeSelector)
	if err != nil {
		return false, fmt.Errorf("cannot read the node selector of policy %s: %w", p.Name, err)
	}
	return s.Matches(labels.Set(node.Labels)), nil
}

func (r *rule) excludes() bool {
	return r.policy.Spec.Action == v1alpha1.ActionExclude
}

func (r *rule) problem(device, format string, args ...any) {
	r.problems = append(r.problems,
		Problem{Policy: r.policy.Name, Device: device, Message: fmt.Sprintf(format, args...)})
}

func (r *rule) reason(outcome Outcome, format string, args ...any) Reason {
	return Reason{Policy: r.policy.Name, Outcome: outcome, Message: fmt.Sprintf(format, args...)}
}

type answer struct {
	matches bool
	err     error
}

// These are the limits on the cost of expressions, in CEL units, for each scan of a node's devices. A CPU evaluates
// about 20,000 units per millisecond. All policies share readingCost, but each policy is granted at least
// evaluationShare for every device.
const (
	readingCost     = 20_000_000
	evaluationShare = 100
)

// evaluate evaluates every rule's expression for every device, and returns the results by device and then by rule. This
// is most of the work in Resolve. It deliberately uses only one CPU, since the purpose of a node is to run pods. Once a
// rule has used up its share of the cost limit, it fails for the remaining devices.
func evaluate(ctx context.Context, devices []discovery.Device, rules []*rule) ([][]answer, error) {
	asking := 0
	for _, r := range rules {
		if r.hasSelectorToEvaluate() {
			asking++
		}
	}
	// Each policy has its own share, so an expensive policy does not cause other policies to fail.
	budget := max(readingCost/uint64(max(asking, 1)), evaluationShare*uint64(len(devices)))
	spent := make([]uint64, len(rules))
	answers := make([][]answer, len(devices))
	for i := range devices {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		device := variablesOf(&devices[i])
		answers[i] = make([]answer, len(rules))
		for j, r := range rules {
			switch {
			case !r.hasSelectorToEvaluate():
			case spent[j] >= budget:
				answers[i][j].err = fmt.Errorf("cannot evaluate the expression: it costs %d on other devices of the "+
					"node, and all %d policies share a budget of %d; simplify it, and compare whole values with "+
					"== or in", spent[j], asking, readingCost)
			default:
				var cost uint64
				answers[i][j].matches, cost, answers[i][j].err = r.selector.matches(device)
				answers[i][j].err = r.unknownName(answers[i][j].err)
				spent[j] += cost
			}
		}
	}
	return answers, nil
}

// unknownName returns the error from an evaluation. If the expression reads an attribute that no device has,
// unknownName returns the error from validation instead: a policy that followed the advice in CEL's message would not
// select anything.
func (r *rule) unknownName(err error) error {
	if err == nil {
		return nil
	}
	_, rest, absent := strings.Cut(err.Error(), "no such key: ")
	if !absent {
		return err
	}
	w, walkErr := r.selector.walked()
	if walkErr != nil {
		return err // impossible, since the expression compiles
	}
	known := Attributes(discovery.Device{})
	for _, a := range w.list {
		_, ok := known[a.qualifiedName()]
		if isIt := rest == a.id || strings.HasPrefix(rest, a.id+"."); isIt && !ok && !a.computed {
			return fmt.Errorf("cannot evaluate the expression: %w", a.unknown())
		}
	}
	return err
}

func (r *rule) hasSelectorToEvaluate() bool {
	return !r.elsewhere && r.invalid == nil && r.broken == nil
}

// decide makes the decision for one device. The rules are sorted by name, and answers has the same order.
func decide(d discovery.Device, rules []*rule, answers []answer) DeviceDecision {
	decision := DeviceDecision{Device: d, Reasons: make([]Reason, len(rules))}
	var candidates []int
	hiddenBy := -1
	for i, r := range rules {
		matches, reason := r.decide(d, answers[i])
		decision.Reasons[i] = reason
		switch {
		case matches && r.excludes() && hiddenBy < 0:
			hiddenBy = i
		case matches && !r.excludes():
			candidates = append(candidates, i)
		}
	}
	if hiddenBy >= 0 {
		for _, i := range candidates {
			decision.Reasons[i] = rules[i].reason(Lost, "policy %s excludes the device", rules[hiddenBy].policy.Name)
		}
		return decision
	}
	winners := map[string]int{}
	for _, i := range candidates {
		suffix := rules[i].policy.Spec.Exposure.DeviceNameSuffix
		if best, ok := winners[suffix]; !ok || rules[i].policy.Spec.Priority > rules[best].policy.Spec.Priority {
			winners[suffix] = i
		}
	}
	for _, i := range candidates {
		p := rules[i].policy
		if winner := winners[p.Spec.Exposure.DeviceNameSuffix]; winner != i {
			w := rules[winner].policy
			decision.Reasons[i] = rules[i].reason(Lost, "%s", outrankedBy(w, p))
			continue
		}
		given := personas(p, rules[i].attributesOf(&d))
		rules[i].warnOfNodeTraffic(&d, given)
		decision.Personas = append(decision.Personas, given...)
	}
	slices.SortStableFunc(decision.Personas, func(a, b Persona) int { return cmp.Compare(a.Suffix, b.Suffix) })
	return decision
}

// warnOfNodeTraffic records a remark if a claim could get exclusive use of a device that the node needs. Only a policy
// can hide such a device. Without one, the driver rejects the attachment when the pod starts (discovery.Busy).
func (r *rule) warnOfNodeTraffic(d *discovery.Device, given []Persona) {
	if !d.DefaultRoute || !slices.ContainsFunc(given, func(p Persona) bool { return p.Exclusive }) {
		return
	}
	r.problems = append(r.problems, Problem{Policy: r.policy.Name, Device: string(d.Name), Remark: true,
		Message: "it is offered exclusively, although it or a link on top of it carries a default route or an " +
			"address of the node: pods of claims that get it do not start; hide it with the policy " +
			"exclude-infrastructure of deploy/policies.yaml, or add && !" +
			access{domain: v1alpha1.AttributeDomain, id: "defaultRoute"}.field(".") + " to the expression"})
}

// outrankedBy explains why one of two policies with the same suffix wins, and how to let the other one win.
func outrankedBy(winner, p *v1alpha1.DeviceExposurePolicy) string {
	if winner.Spec.Priority > p.Spec.Priority {
		return fmt.Sprintf("policy %s wins: same deviceNameSuffix %q, and priority %d against %d; give this one a "+
			"higher priority or another suffix",
			winner.Name, p.Spec.Exposure.DeviceNameSuffix, winner.Spec.Priority, p.Spec.Priority)
	}
	return fmt.Sprintf("policy %s wins: same deviceNameSuffix %q and priority %d, and its name sorts first; give "+
		"this one a higher priority or another suffix", winner.Name, p.Spec.Exposure.DeviceNameSuffix, p.Spec.Priority)
}

// decide reports whether the policy matches a device, and why. A policy that matches may still lose to another matching
// expose policy with a higher priority.
func (r *rule) decide(d discovery.Device, a answer) (bool, Reason) {
	switch {
	case r.elsewhere:
		return false, r.reason(OtherNodes, "nodeSelector does not match the node's labels")
	case r.invalid != nil:
		return false, r.reason(Invalid, "%v", r.invalid)
	case r.broken != nil:
		return r.excludes(), r.reason(Failed, "%v", r.broken)
	}
	switch {
	case a.err != nil:
		if !r.evaluationFailed {
			r.evaluationFailed = true
			r.problem(string(d.Name), "%v", a.err)
		}
		return r.excludes(), r.reason(Failed, "%v", a.err)
	case !a.matches:
		return false, r.reason(NoMatch, "the expression is false")
	case r.excludes():
		return true, r.reason(Excludes, "the expression is true")
	}
	return true, r.reason(Exposes, "the expression is true")
}
