package offers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// CheckOptions are the flags of "netdra policies test".
type CheckOptions struct {
	Inputs
	Old   []string
	Form  string
	Alone bool
}

// PoliciesCheck is the result of "netdra policies test".
type PoliciesCheck struct {
	Policies []PolicyEffect `json:"policies"`
	Changes  []Change       `json:"changes"`
}

// Run prints which devices the policies in files would expose or hide, and the changes that would result.
//
// Both snapshots use the same facts, so that, for example, a cable unplugged in between does not look like the effect
// of a policy. Invalid policies are included as well, so that the result shows how nodes would treat them.
func (f *CheckOptions) Run(ctx context.Context, deps osdeps.Deps, streams printer.Streams, files []string) error {
	if len(f.Files) > 0 {
		return exit.Refusef("cannot use -f; pass the files as arguments: netdra policies test FILE")
	}
	given, err := manifest.ReadPolicies(files, streams.In)
	if err != nil {
		return err
	}
	before, err := f.before(ctx, deps, streams)
	if err != nil {
		return err
	}
	// Without flags, both snapshots use the information about the node from the driver, so that only the policies
	// differ.
	after, err := f.ofDriver(before.Answers).resolve(deps, before.Facts, mergePolicies(before.Policies, given, f.Alone),
		before.Answers)
	if err != nil {
		return err
	}
	tested := PoliciesCheck{Policies: []PolicyEffect{}, Changes: Compare(before.offers(), after.offers())}
	for i := range given {
		tested.Policies = append(tested.Policies, after.checkPolicy(&given[i]))
	}
	for i := range tested.Changes {
		tested.Changes[i].HeldBy = before.heldBy(tested.Changes[i].Pool, tested.Changes[i].Name)
	}
	return exit.Check(printer.Show(streams.Out, f.Form, tested, tested.print),
		slices.ContainsFunc(tested.Policies, func(p PolicyEffect) bool { return len(p.Invalid) > 0 }))
}

func (f *CheckOptions) before(ctx context.Context, deps osdeps.Deps, streams printer.Streams) (*Snapshot, error) {
	if len(f.Old) == 0 && f.Recording == "" {
		before, err := f.readDriver(ctx, deps)
		if err != nil {
			return nil, fmt.Errorf("cannot read the current policies for the comparison: %w; without the driver, pass "+
				"the current policies with --policies FILE, or a recorded machine with --from DIR", err)
		}
		return before, nil
	}
	var policies []policyapi.DeviceExposurePolicy
	if len(f.Old) > 0 {
		var err error
		if policies, err = manifest.ReadPolicies(f.Old, streams.In); err != nil {
			return nil, fmt.Errorf("--policies: %w", err)
		}
	}
	return f.Build(ctx, deps, policies, printer.New(streams.Err))
}

// mergePolicies returns the policies that would exist after applying the given policies to the old ones: a given policy
// replaces the old policy with the same name. If alone is true, it returns only the given policies.
func mergePolicies(old, given []policyapi.DeviceExposurePolicy, alone bool) []policyapi.DeviceExposurePolicy {
	if alone {
		return given
	}
	kept := slices.DeleteFunc(slices.Clone(old), func(p policyapi.DeviceExposurePolicy) bool {
		return slices.ContainsFunc(given, func(g policyapi.DeviceExposurePolicy) bool { return g.Name == p.Name })
	})
	return append(kept, given...)
}

func (s *Snapshot) offers() []Offer {
	var offers []Offer
	for i := range s.Result.Entries {
		entry := &s.Result.Entries[i]
		row := sliceRow(entry, s.published[draslices.EntryID{Pool: entry.Pool, Name: entry.Name}])
		plugins := strings.Join(s.Features.Working(entry.Persona.Plugins), ", ")
		if entry.Persona.IsBandwidth() {
			plugins = "claims that take bandwidth"
		}
		offers = append(offers, Offer{
			Pool: entry.Pool, Name: entry.Name, Policy: entry.Persona.Policy, Use: row[3],
			Plugins: plugins, Capacity: row[4], Consumes: row[5],
			Attributes: attributesText(entry),
		})
	}
	return offers
}

func (s *Snapshot) checkPolicy(p *policyapi.DeviceExposurePolicy) PolicyEffect {
	e := PolicyEffect{Policy: p.Name, Action: cmp.Or(string(p.Spec.Action), string(policyapi.ActionExpose)),
		Exposes: []string{}, Unusable: []string{}, Hides: []string{}, Loses: []string{}, Fails: []string{},
		devices: len(s.Decision.Devices)}
	invalid, remarks := policy.Check(p)
	e.Remarks = remarks
	for _, problem := range invalid {
		e.Invalid = append(e.Invalid, problem.Error())
	}
	for _, problem := range slices.Concat(s.Decision.Problems, s.Result.Problems) {
		known := len(invalid) > 0 ||
			slices.Contains(remarks, problem.Message) // already reported, perhaps with different text
		if problem.Policy == p.Name && !known {
			e.Problems = append(e.Problems, problem.String())
		}
	}
	for i := range s.Decision.Devices {
		device := &s.Decision.Devices[i]
		for _, reason := range device.Reasons {
			if reason.Policy == p.Name {
				e.add(s, string(device.Device.Name), reason)
			}
		}
	}
	e.State = e.state()
	return e
}

func (e *PolicyEffect) add(s *Snapshot, device string, reason policy.Reason) {
	switch reason.Outcome {
	case policy.Exposes:
		if why := s.whyUnusable(e.Policy, discovery.IfName(device)); why != "" {
			e.Unusable = append(e.Unusable, device+" ("+why+")")
		} else {
			e.Exposes = append(e.Exposes, device)
		}
	case policy.Excludes:
		e.Hides = append(e.Hides, device)
	case policy.Failed:
		e.Fails = append(e.Fails, device)
	case policy.Lost:
		e.Loses = append(e.Loses, device+" ("+reason.Message+")")
	case policy.OtherNodes:
		e.otherNodes = true
	case policy.Invalid:
		e.notEvaluated = true
	case policy.NoMatch:
	}
}

// whyUnusable returns the reason why no class can select a device exposed by a policy, or "" if a class can select it.
func (s *Snapshot) whyUnusable(policyName string, device discovery.IfName) string {
	why := "the settings of the policy cannot be published"
	for i := range s.Result.Entries {
		entry := &s.Result.Entries[i]
		if entry.Persona.Policy != policyName || entry.Device.Name != device {
			continue
		}
		if len(s.Features.Working(entry.Persona.Plugins)) > 0 {
			return ""
		}
		why = s.Features.WhyNoneWorks(entry.Persona.Plugins)
	}
	return why
}

func (t *PoliciesCheck) print(out *printer.Printer) {
	for i := range t.Policies {
		t.Policies[i].print(out)
	}
	out.Section("Changes")
	if len(t.Changes) == 0 {
		out.Printf("none")
	}
	for i := range t.Changes {
		printChange(out, &t.Changes[i])
	}
}

func (e *PolicyEffect) print(out *printer.Printer) {
	switch {
	case len(e.Invalid) == 1:
		out.Bad("policy %s would not be accepted: %s", e.Policy, e.Invalid[0])
	case len(e.Invalid) > 1:
		out.Bad("policy %s would not be accepted:", e.Policy)
		for _, problem := range e.Invalid {
			out.Printf("  %s", problem)
		}
	case len(e.Unusable) > 0:
		out.Warn("policy %s", e.Policy)
	default:
		out.Good("policy %s", e.Policy)
	}
	for _, text := range slices.Concat(e.Remarks, e.Problems) {
		out.Printf("  %s %s", out.Colour(printer.Yellow, "!"), strings.TrimPrefix(text, "policy "+e.Policy+": "))
	}
	if e.otherNodes {
		out.Printf("  does not select this node")
		return
	}
	if e.notEvaluated {
		out.Printf("  is not evaluated for devices until it is fixed")
		return
	}
	unusable := slices.Clone(e.Unusable)
	for i := range unusable {
		// The problems that are printed above already contain the reason.
		if name, _, found := strings.Cut(unusable[i], " ("); found && len(e.Problems) > 0 {
			unusable[i] = name
		}
	}
	for _, row := range []struct {
		does    string
		devices []string
	}{{"exposes", e.Exposes}, {"would expose, but no class can select", unusable}, {"hides", e.Hides},
		{e.failsText(), e.Fails}, {"leaves to another policy", e.Loses}} {
		switch n := len(row.devices); {
		case n == e.devices && n > 1 && n == len(e.Fails):
			out.Printf("  %s all %d devices of this machine", row.does, n)
		case n > 0:
			out.Printf("  %s %s: %s", row.does, printer.Plural(n, "device"), strings.Join(row.devices, ", "))
		}
	}
	if e.devices == 0 {
		out.Printf("  matches nothing: this machine has no devices")
		return
	}
	if e.matches() || len(e.Fails) == e.devices {
		return
	}
	if falseFor := e.devices - len(e.Fails); len(e.Fails) > 0 {
		out.Printf("  matches none of the other %s: its expression is false there", printer.Plural(falseFor, "device"))
	} else {
		out.Printf("  matches none of the %s of this machine: its expression is false for each",
			printer.Plural(falseFor, "device"))
	}
}

// failsText describes the policy's effect on devices for which its expression cannot be evaluated.
func (e *PolicyEffect) failsText() string {
	if e.Action == string(policyapi.ActionExclude) {
		return "fails for, and therefore hides,"
	}
	return "fails for"
}

func printChange(out *printer.Printer, c *Change) {
	switch c.Kind {
	case Added:
		out.Printf("%s %s: offered by policy %s, %s, for %s", out.Colour(printer.Green, "+"), c.Name, c.Offer.Policy,
			c.Offer.Use, cmp.Or(c.Offer.Plugins, "no CNI plugin that works on the node, so no class can select it"))
	case Removed:
		out.Printf("%s %s: no longer offered", out.Colour(printer.Red, "-"), c.Name)
	case Changed:
		var texts []string
		for _, field := range c.Fields {
			texts = append(texts, fmt.Sprintf("%s %s → %s", field.Name, cmp.Or(field.Before, "-"),
				cmp.Or(field.After, "-")))
		}
		out.Printf("%s %s: %s", out.Colour(printer.Yellow, "~"), c.Name, strings.Join(texts, "; "))
	}
	if len(c.HeldBy) > 0 {
		out.Warn("  claim %s holds it, and keeps it unchanged until the claim is released",
			strings.Join(c.HeldBy, ", "))
	}
}

// PolicyEffect is the effect of a policy on a machine. The lists contain device names, because policies apply to
// devices rather than entries. The lists are never nil, so JSON contains an empty list instead of null.
type PolicyEffect struct {
	Policy string `json:"policy"`
	// Action is expose or exclude.
	Action  string   `json:"action"`
	State   string   `json:"state"`
	Exposes []string `json:"exposes"`
	// Unusable lists exposed devices that no class can select, with the reason for each.
	Unusable []string `json:"unusable"`
	Hides    []string `json:"hides"`
	// Loses lists devices that match the policy but for which another policy takes precedence, with the reason for
	// each.
	Loses []string `json:"loses"`
	// Fails lists devices for which evaluation fails. If the policy's action is exclude, these devices are hidden.
	Fails []string `json:"fails"`
	// Invalid contains the reasons why the API server or the webhook would reject the policy, and Problems contains the
	// problems that the policy causes on this machine. Like Remarks, both are set only by "netdra policies test".
	Invalid  []string `json:"invalid,omitempty"`
	Remarks  []string `json:"remarks,omitempty"`
	Problems []string `json:"problems,omitempty"`
	// otherNodes is true if the policy applies only to other nodes. notEvaluated is true if nodes do not evaluate the
	// policy because it has errors. devices is the number of devices on the machine.
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

// PolicyEffects returns the effects of the named policies on the driver's node. If no names are given, it returns the
// effects of all policies.
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

func (e *PolicyEffect) selects() bool { return e.matches() || len(e.Fails) > 0 }

// matches reports whether the policy's expression is true for any device.
func (e *PolicyEffect) matches() bool {
	return len(e.Exposes)+len(e.Unusable)+len(e.Hides)+len(e.Loses) > 0
}

// EffectColumns returns the columns of a policy table.
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
