package offers

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// PolicyEffect is the effect that a policy has on a machine. The lists contain device names, because a policy decides
// about devices, and are never nil, so that they are also lists in JSON.
type PolicyEffect struct {
	Policy string `json:"policy"`
	// Action is expose or exclude.
	Action  string   `json:"action"`
	State   string   `json:"state"`
	Exposes []string `json:"exposes"`
	// Unusable are exposed devices that no class can select, each with the reason.
	Unusable []string `json:"unusable"`
	Hides    []string `json:"hides"`
	// Loses are matching devices for which another policy takes precedence, each with the reason.
	Loses []string `json:"loses"`
	// Fails are devices for which the expression fails; an exclude policy hides them.
	Fails []string `json:"fails"`
	// Meant contains the names in the expression that resemble device names, if the policy selects nothing.
	Meant []string `json:"meant,omitempty"`
	// Invalid contains the reasons why the policy would not be accepted, and Problems the problems that it causes on
	// this machine. Like Remarks, they are only set by "netdra policies test".
	Invalid  []string `json:"invalid,omitempty"`
	Remarks  []string `json:"remarks,omitempty"`
	Problems []string `json:"problems,omitempty"`
	// otherNodes reports whether the policy only applies to other nodes, and notEvaluated whether nodes would not
	// evaluate it because of its errors. devices is the number of devices on the machine.
	otherNodes, notEvaluated bool
	devices                  int
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

// PolicyEffects returns the effects of the named policies on the driver's node, or of all policies if no names are
// given.
func (f *Inputs) PolicyEffects(ctx context.Context, deps osdeps.Deps, names []string) ([]PolicyEffect, error) {
	snapshot, err := f.readDriver(ctx, deps)
	if err != nil {
		return nil, err
	}
	effects := slices.DeleteFunc(snapshot.Effects(), func(e PolicyEffect) bool {
		return len(names) > 0 && !slices.Contains(names, e.Policy)
	})
	for _, name := range names {
		if !slices.ContainsFunc(effects, func(e PolicyEffect) bool { return e.Policy == name }) {
			return nil, fmt.Errorf("cannot find DeviceExposurePolicy %s; \"kubectl get dep\" lists the policies", name)
		}
	}
	return effects, nil
}

// Effects returns the effects of all policies on the machine.
func (s *Snapshot) Effects() []PolicyEffect {
	effects := []PolicyEffect{}
	for i := range s.Policies {
		e := s.checkPolicy(&s.Policies[i])
		e.Invalid, e.Remarks, e.Problems = nil, nil, nil
		effects = append(effects, e)
	}
	return effects
}

// state returns the value of State.
func (e *PolicyEffect) state() string {
	switch {
	case len(e.Invalid) > 0 || e.notEvaluated:
		return effectInvalid
	case e.otherNodes:
		return effectOtherNodes
	case !e.selects():
		return effectNoMatch
	case !e.matches():
		return effectFailed
	case len(e.Exposes) == 0 && len(e.Unusable) > 0:
		return effectUnusable
	}
	return effectActive
}

// selects reports whether the policy matches any device or fails for one.
func (e *PolicyEffect) selects() bool { return e.matches() || len(e.Fails) > 0 }

// matches reports whether the policy's expression is true for any device.
func (e *PolicyEffect) matches() bool {
	return len(e.Exposes)+len(e.Unusable)+len(e.Hides)+len(e.Loses) > 0
}

// EffectColumns returns the columns for a table of policies.
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

// WarnOfUnusable prints a warning for exposed devices that no class can select. node is the name of the node, or empty
// for this node.
func WarnOfUnusable(out *printer.Printer, node string, effects []PolicyEffect) {
	if node != "" {
		node = "node " + node + ": "
	}
	for i := range effects {
		if unusable := effects[i].Unusable; len(unusable) > 0 {
			out.Warn("%spolicy %s exposes %s that no class can select: %s", node, effects[i].Policy,
				printer.Plural(len(unusable), "device"), strings.Join(unusable, ", "))
		}
	}
}

// mostMeant is the maximum number of similar names that are printed for a policy, because a policy may apply to many
// nodes.
const mostMeant = 3

// WarnOfIdle prints a warning for expose policies that select no device on any of the nodes, with similar device names.
// It is not a problem if an exclude policy selects no device. nodes describes the nodes, for example "this node".
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
		selecting[name] = true // report it once
		advice := `compare its selector with the attributes of "netdra facts"`
		if texts := meant[name]; len(texts) > 0 {
			advice = strings.Join(texts, "; ")
		}
		out.Warn("policy %s selects no device of %s: %s", name, nodes, advice)
	}
}

// WarnOfNames prints a warning for policies that select nothing on this node and contain names that resemble device
// names. Other policies without devices may be intended for other nodes.
func WarnOfNames(out *printer.Printer, effects []PolicyEffect) {
	WarnOfIdle(out, "this node", slices.DeleteFunc(slices.Clone(effects),
		func(effect PolicyEffect) bool { return len(effect.Meant) == 0 }))
}
