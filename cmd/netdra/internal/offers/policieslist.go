package offers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// PolicyEffect is what a policy of the cluster does on a node. The lists are of names of devices.
type PolicyEffect struct {
	Policy string `json:"policy"`
	// Action is expose or exclude.
	Action  string   `json:"action"`
	State   string   `json:"state"`
	Exposes []string `json:"exposes"`
	// Unusable are devices that it exposes and no class can pick, with the reason.
	Unusable []string `json:"unusable"`
	Hides    []string `json:"hides"`
	// Loses are devices that it matches and another policy decides about, with the reason.
	Loses []string `json:"loses"`
	// Fails are devices for which its expression is an error.
	Fails []string `json:"fails"`
	// Meant says which names in the expression of a policy that selects nothing are almost those of devices.
	Meant []string `json:"meant,omitempty"`
}

// Values of PolicyEffect.State.
const (
	effectActive     = "active"
	effectUnusable   = "unusable"
	effectNoMatch    = "no match"
	effectFailed     = "failed"
	effectOtherNodes = "other nodes"
	effectInvalid    = "invalid"
)

// PolicyEffects returns what the policies of the cluster do on the node of the driver; all of them without names. Lists
// are never nil, so that scripts find a list in JSON.
func (f *Inputs) PolicyEffects(ctx context.Context, deps osdeps.Deps, names []string) ([]PolicyEffect, error) {
	snapshot, err := f.readDriver(ctx, deps)
	if err != nil {
		return nil, err
	}
	effects := []PolicyEffect{}
	for i := range snapshot.Policies {
		if p := &snapshot.Policies[i]; len(names) == 0 || slices.Contains(names, p.Name) {
			tested := snapshot.checkPolicy(p)
			effect := effectOf(&tested)
			effect.Action = cmp.Or(string(p.Spec.Action), string(policyapi.ActionExpose))
			effects = append(effects, effect)
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(effects, func(e PolicyEffect) bool { return e.Policy == name }) {
			return nil, fmt.Errorf("there is no DeviceExposurePolicy %s: \"kubectl get dep\" lists them", name)
		}
	}
	return effects, nil
}

func effectOf(tested *policyCheck) PolicyEffect {
	e := PolicyEffect{Policy: tested.Name, State: effectActive, Exposes: append([]string{}, tested.Exposes...),
		Unusable: append([]string{}, tested.Unusable...),
		Hides:    append([]string{}, tested.Hides...), Loses: append([]string{}, tested.Loses...),
		Fails: append([]string{}, tested.Fails...), Meant: tested.Meant}
	switch {
	case len(tested.Invalid) > 0 || tested.NotEvaluated:
		e.State = effectInvalid
	case tested.OtherNodes:
		e.State = effectOtherNodes
	case !e.selects():
		e.State = effectNoMatch
	case !e.matches():
		e.State = effectFailed
	case len(e.Exposes) == 0 && len(e.Unusable) > 0:
		e.State = effectUnusable
	}
	return e
}

// selects reports whether the policy matches a device, or fails for one.
func (e *PolicyEffect) selects() bool { return e.matches() || len(e.Fails) > 0 }

// matches reports whether the policy's expression is true for a device.
func (e *PolicyEffect) matches() bool {
	return len(e.Exposes)+len(e.Unusable)+len(e.Hides)+len(e.Loses) > 0
}

// EffectColumns are those of a table of policies.
func EffectColumns() []printer.Column[PolicyEffect] {
	count := func(title string, devices func(*PolicyEffect) []string) printer.Column[PolicyEffect] {
		return printer.Column[PolicyEffect]{Title: title,
			Value: func(e *PolicyEffect) string { return strconv.Itoa(len(devices(e))) }}
	}
	names := func(title string, devices func(*PolicyEffect) []string) printer.Column[PolicyEffect] {
		return printer.Column[PolicyEffect]{Title: title, Wide: true,
			Value: func(e *PolicyEffect) string { return strings.Join(devices(e), ", ") }}
	}
	return []printer.Column[PolicyEffect]{
		{Title: "POLICY", Value: func(e *PolicyEffect) string { return e.Policy }},
		{Title: "ACTION", Value: func(e *PolicyEffect) string { return e.Action }},
		{Title: "STATE", Value: func(e *PolicyEffect) string { return e.State }},
		count("EXPOSES", func(e *PolicyEffect) []string { return e.Exposes }),
		count("UNUSABLE", func(e *PolicyEffect) []string { return e.Unusable }),
		count("HIDES", func(e *PolicyEffect) []string { return e.Hides }),
		count("LOSES", func(e *PolicyEffect) []string { return e.Loses }),
		count("FAILS", func(e *PolicyEffect) []string { return e.Fails }),
		names("EXPOSED DEVICES", func(e *PolicyEffect) []string { return e.Exposes }),
		names("UNUSABLE DEVICES", func(e *PolicyEffect) []string { return e.Unusable }),
		names("HIDDEN DEVICES", func(e *PolicyEffect) []string { return e.Hides }),
		names("LOST DEVICES", func(e *PolicyEffect) []string { return e.Loses }),
		names("FAILED DEVICES", func(e *PolicyEffect) []string { return e.Fails }),
	}
}

// WarnOfUnusable prints which devices policies expose in vain, and why. node is the name of the node; empty for this
// one.
func WarnOfUnusable(out *printer.Printer, node string, effects []PolicyEffect) {
	if node != "" {
		node = "node " + node + ": "
	}
	for i := range effects {
		if unusable := effects[i].Unusable; len(unusable) > 0 {
			out.Warn("%spolicy %s exposes %s that no class can pick: %s", node, effects[i].Policy,
				printer.Plural(len(unusable), "device"), strings.Join(unusable, ", "))
		}
	}
}

// mostMeant is how many names that nodes know are told of one policy: it may be for many nodes.
const mostMeant = 3

// WarnOfIdle prints which policies that expose devices select none on any of the nodes, and which names in them are
// almost right there. One that hides what is not there does what it is for. The nodes are, for example, "this node".
func WarnOfIdle(out *printer.Printer, nodes string, effects []PolicyEffect) {
	selecting, meant := map[string]bool{}, map[string][]string{}
	for i := range effects {
		name := effects[i].Policy
		selecting[name] = selecting[name] || effects[i].selects() ||
			effects[i].Action == string(policyapi.ActionExclude)
		for _, text := range effects[i].Meant {
			if !slices.Contains(meant[name], text) && len(meant[name]) < mostMeant {
				meant[name] = append(meant[name], text)
			}
		}
	}
	for i := range effects {
		name := effects[i].Policy
		if selecting[name] {
			continue
		}
		selecting[name] = true // it is said once
		advice := `compare its selector with the attributes of "netdra facts"`
		if texts := meant[name]; len(texts) > 0 {
			advice = strings.Join(texts, "; ")
		}
		out.Warn("policy %s selects no device of %s: %s", name, nodes, advice)
	}
}

// WarnOfNames prints which policies select nothing on this node and have names that are almost right: of others nobody
// knows what they are for.
func WarnOfNames(out *printer.Printer, effects []PolicyEffect) {
	WarnOfIdle(out, "this node", slices.DeleteFunc(slices.Clone(effects),
		func(effect PolicyEffect) bool { return len(effect.Meant) == 0 }))
}
