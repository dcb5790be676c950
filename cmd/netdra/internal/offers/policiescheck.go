package offers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	"github.com/dra-networking/dra-network-driver/slices/upcoming"
)

// CheckOptions are the flags of "policies test".
type CheckOptions struct {
	Inputs
	Old   []string
	Form  string
	Alone bool
}

// PoliciesCheck is the result.
type PoliciesCheck struct {
	Policies []policyCheck `json:"policies"`
	Changes  []Change      `json:"changes"`
}

// policyCheck is the result for one policy. Names are those of devices, not of published entries: a policy decides
// about devices.
type policyCheck struct {
	Name string `json:"name"`
	// Invalid is why it would not be accepted.
	Invalid []string `json:"invalid,omitempty"`
	Remarks []string `json:"remarks,omitempty"`
	// Problems are those that this machine has with it.
	Problems []string `json:"problems,omitempty"`
	Exposes  []string `json:"exposes,omitempty"`
	// Unusable are devices that it exposes and no class can pick, with the reason.
	Unusable []string `json:"unusable,omitempty"`
	Hides    []string `json:"hides,omitempty"`
	// Fails are devices for which its expression is an error; an exclude policy hides them.
	Fails []string `json:"fails,omitempty"`
	// Loses are devices that it matches and another policy decides about.
	Loses []string `json:"loses,omitempty"`
	// OtherNodes means that it is not for this node.
	OtherNodes bool `json:"otherNodes,omitempty"`
	// NotEvaluated means that it is so wrong that nodes would not ask it about devices.
	NotEvaluated bool `json:"notEvaluated,omitempty"`
	// Meant are devices whose names are almost those that it looks for, of a policy that matches none.
	Meant []string `json:"meant,omitempty"`
	// excludes means that it hides what it matches, and what it fails for.
	excludes bool
	// devices is how many the machine has.
	devices int
}

// Run prints what the policies of files would expose, hide and change.
//
// Both snapshots are of the same facts, so that a cable that is pulled between two readings is no effect of a policy.
// An invalid policy is compared, too: the answer is what nodes would do with it.
func (f *CheckOptions) Run(ctx context.Context, deps osdeps.Deps, streams printer.Streams, files []string) error {
	if len(f.Files) > 0 {
		return exit.Refusef("-f: say the files without it: netdra policies test FILE")
	}
	given, err := manifest.ReadPolicies(files, streams.In)
	if err != nil {
		return err
	}
	before, err := f.before(ctx, deps, streams)
	if err != nil {
		return err
	}
	// Without flags the driver's view of the node holds for both.
	after, err := f.withNodeOf(before).resolve(deps, before.Facts, mergePolicies(before.Policies, given, f.Alone),
		before.Answers)
	if err != nil {
		return err
	}
	tested := PoliciesCheck{Policies: []policyCheck{}, Changes: Compare(before.offers(), after.offers())}
	for i := range given {
		tested.Policies = append(tested.Policies, after.checkPolicy(&given[i]))
	}
	for i := range tested.Changes {
		tested.Changes[i].HeldBy = before.heldBy(tested.Changes[i].Pool, tested.Changes[i].Name)
	}
	err = printer.Show(streams.Out, f.Form, tested, tested.print)
	if err == nil && slices.ContainsFunc(tested.Policies, func(p policyCheck) bool { return len(p.Invalid) > 0 }) {
		err = exit.Reported()
	}
	return err
}

// before is the machine with the policies that are there now.
func (f *CheckOptions) before(ctx context.Context, deps osdeps.Deps, streams printer.Streams) (*Snapshot, error) {
	if len(f.Old) == 0 && f.Recording == "" {
		before, err := f.readDriver(ctx, deps)
		if err != nil {
			return nil, fmt.Errorf("cannot read the current policies, which the new ones are compared with: %w; to do "+
				"without the driver, give the current policies with --policies FILE, or a recorded machine with "+
				"--from DIR", err)
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

// withNodeOf takes over the driver's name, labels and plugins of the node, so that only the policies differ.
func (f *CheckOptions) withNodeOf(before *Snapshot) *Inputs {
	inputs := f.Inputs
	if before.Answers != nil {
		inputs.Node, inputs.Labels = before.Node.Name, before.Node.Labels
		if inputs.Plugins == nil {
			inputs.Plugins = before.Answers.State.CNIPlugins
		}
	}
	return &inputs
}

// mergePolicies are the policies that would be there. Policies are told apart by name, as in a cluster.
func mergePolicies(old, given []policyapi.DeviceExposurePolicy, alone bool) []policyapi.DeviceExposurePolicy {
	if alone {
		return given
	}
	kept := slices.DeleteFunc(slices.Clone(old), func(p policyapi.DeviceExposurePolicy) bool {
		return slices.ContainsFunc(given, func(g policyapi.DeviceExposurePolicy) bool { return g.Name == p.Name })
	})
	return append(kept, given...)
}

// offers are the devices as they are published.
func (s *Snapshot) offers() []Offer {
	published := upcoming.FromResult(s.Result)
	var offers []Offer
	for i := range s.Result.Entries {
		entry := &s.Result.Entries[i]
		row := sliceRow(entry, publishedAs(published, entry))
		installed := s.installedPlugins(entry)
		offers = append(offers, Offer{
			Pool: entry.Pool, Name: entry.Name, Policy: entry.Persona.Policy, Use: row[3],
			Plugins: strings.Join(installed, ", "), Capacity: row[4], Consumes: row[5],
			Attributes: attributesText(entry),
		})
	}
	return offers
}

// checkPolicy describes what comes of one policy.
func (s *Snapshot) checkPolicy(p *policyapi.DeviceExposurePolicy) policyCheck {
	tested := policyCheck{Name: p.Name, excludes: p.Spec.Action == policyapi.ActionExclude,
		devices: len(s.Decision.Devices)}
	invalid, remarks := policy.Check(p)
	tested.Remarks = append(remarks, s.misspelt(p)...)
	for _, problem := range invalid {
		tested.Invalid = append(tested.Invalid, problem.Error())
	}
	for _, problem := range slices.Concat(s.Decision.Problems, s.Result.Problems) {
		known := len(invalid) > 0 ||
			slices.Contains(remarks, problem.Message) // then it is the same, perhaps in other words
		if problem.Policy == p.Name && !known {
			tested.Problems = append(tested.Problems, problem.String())
		}
	}
	for i := range s.Decision.Devices {
		device := &s.Decision.Devices[i]
		for _, reason := range device.Reasons {
			if reason.Policy != p.Name {
				continue
			}
			name := string(device.Device.Name)
			switch reason.Outcome {
			case policy.Exposes:
				if why := s.whyUnusable(p.Name, device.Device.Name); why != "" {
					tested.Unusable = append(tested.Unusable, name+" ("+why+")")
				} else {
					tested.Exposes = append(tested.Exposes, name)
				}
			case policy.Excludes:
				tested.Hides = append(tested.Hides, name)
			case policy.Failed:
				tested.Fails = append(tested.Fails, name)
			case policy.Lost:
				tested.Loses = append(tested.Loses, name+" ("+reason.Message+")")
			case policy.OtherNodes:
				tested.OtherNodes = true
			case policy.Invalid:
				tested.NotEvaluated = true
			case policy.NoMatch:
			}
		}
	}
	if len(tested.Exposes)+len(tested.Unusable)+len(tested.Hides)+len(tested.Loses) == 0 && !tested.OtherNodes {
		devices := make([]discovery.Device, len(s.Decision.Devices))
		for i := range devices {
			devices[i] = s.Decision.Devices[i].Device
		}
		tested.Meant = policy.NearNames(p.Spec.Selector.CEL, devices)
	}
	return tested
}

// whyUnusable returns why no class can pick a device that a policy exposes; empty if one can.
func (s *Snapshot) whyUnusable(policyName string, device discovery.IfName) string {
	why := "what the policy wants cannot be published"
	for i := range s.Result.Entries {
		entry := &s.Result.Entries[i]
		if entry.Persona.Policy != policyName || entry.Device.Name != device {
			continue
		}
		if len(s.installedPlugins(entry)) > 0 {
			return ""
		}
		why = s.Features.WhyNoneWorks(entry.Persona.Plugins)
	}
	return why
}

// misspelt returns which CNI plugins of a policy the node lacks that are probably other ones.
func (s *Snapshot) misspelt(p *policyapi.DeviceExposurePolicy) []string {
	var names []string
	if p.Spec.Exposure != nil {
		for i := range p.Spec.Exposure.SupportedCNIPlugins {
			name := p.Spec.Exposure.SupportedCNIPlugins[i].Name
			if !s.Features.CNIBinaries.Has(name) || s.Answers == nil {
				names = append(names, name)
			}
		}
	}
	return cnichain.MisspeltPlugins(names, cnichain.DefaultSchemas())
}

// print writes it for people.
func (t *PoliciesCheck) print(out *printer.Printer) {
	for i := range t.Policies {
		t.Policies[i].print(out)
	}
	out.Section("What would change")
	if len(t.Changes) == 0 {
		out.Printf("nothing")
	}
	for i := range t.Changes {
		printChange(out, &t.Changes[i])
	}
}

func (t *policyCheck) print(out *printer.Printer) {
	switch {
	case len(t.Invalid) == 1:
		out.Bad("policy %s would not be accepted: %s", t.Name, t.Invalid[0])
	case len(t.Invalid) > 1:
		out.Bad("policy %s would not be accepted:", t.Name)
		for _, problem := range t.Invalid {
			out.Printf("  %s", problem)
		}
	case len(t.Unusable) > 0, len(t.Meant) > 0:
		out.Warn("policy %s", t.Name)
	default:
		out.Good("policy %s", t.Name)
	}
	for _, text := range slices.Concat(t.Remarks, t.Problems) {
		out.Printf("  %s %s", out.Colour(printer.Yellow, "!"), strings.TrimPrefix(text, "policy "+t.Name+": "))
	}
	if t.OtherNodes {
		out.Printf("  is not for this node")
		return
	}
	if t.NotEvaluated {
		out.Printf("  is not evaluated for devices until that is corrected")
		return
	}
	unusable := slices.Clone(t.Unusable)
	for i := range unusable {
		if name, _, found := strings.Cut(unusable[i], " ("); found && len(t.Problems) > 0 { // they have the reason
			unusable[i] = name
		}
	}
	for _, row := range []struct {
		does    string
		devices []string
	}{{"exposes", t.Exposes}, {"would expose, but no class can pick", unusable}, {"hides", t.Hides},
		{t.failsText(), t.Fails}, {"leaves to another policy", t.Loses}} {
		switch n := len(row.devices); {
		case n == t.devices && n > 1 && n == len(t.Fails):
			out.Printf("  %s all %d devices of this machine", row.does, n)
		case n > 0:
			out.Printf("  %s %s: %s", row.does, printer.Plural(n, "device"), strings.Join(row.devices, ", "))
		}
	}
	if t.devices == 0 {
		out.Printf("  matches nothing: this machine has no devices")
		return
	}
	if len(t.Exposes)+len(t.Unusable)+len(t.Hides)+len(t.Loses) > 0 || len(t.Fails) == t.devices {
		return
	}
	if falseFor := t.devices - len(t.Fails); len(t.Fails) > 0 {
		out.Printf("  matches none of the other %s: its expression is false there", printer.Plural(falseFor, "device"))
	} else {
		out.Printf("  matches none of the %s of this machine: its expression is false for each",
			printer.Plural(falseFor, "device"))
	}
	for _, text := range t.Meant {
		out.Printf("  %s", text)
	}
}

// failsText is what the policy does with devices for which its expression is an error.
func (t *policyCheck) failsText() string {
	if t.excludes {
		return "fails for, and therefore hides,"
	}
	return "fails for"
}

func printChange(out *printer.Printer, c *Change) {
	switch c.Kind {
	case Added:
		out.Printf("%s %s: offered by policy %s, %s, for %s", out.Colour(printer.Green, "+"), c.Name, c.Offer.Policy,
			c.Offer.Use, cmp.Or(c.Offer.Plugins, "no CNI plugin that works on the node, so no class picks it"))
	case Removed:
		out.Printf("%s %s: not offered any more", out.Colour(printer.Red, "-"), c.Name)
	case Changed:
		var texts []string
		for _, field := range c.Fields {
			texts = append(texts, fmt.Sprintf("%s %s → %s", field.Name, cmp.Or(field.Before, "-"),
				cmp.Or(field.After, "-")))
		}
		out.Printf("%s %s: %s", out.Colour(printer.Yellow, "~"), c.Name, strings.Join(texts, "; "))
	}
	if len(c.HeldBy) > 0 {
		out.Warn("  claim %s has it, and keeps it as it is until it is released", strings.Join(c.HeldBy, ", "))
	}
}
