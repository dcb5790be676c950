package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/change"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
	"github.com/dra-networking/dra-network-driver/slices/upcoming"
)

func policiesCommand(on machine, to console) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "policies",
		Short:   "Try DeviceExposurePolicies before they are applied",
		Long:    `The command below works on DeviceExposurePolicies in YAML files. It changes nothing.`,
		Example: `  sudo netdra policies test policies.yaml`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(policiesTestCommand(on, to))
	return cmd
}

// policiesTest are the flags of "policies test".
type policiesTest struct {
	preview
	old          []string
	socket, form string
	alone        bool
}

func policiesTestCommand(on machine, to console) *cobra.Command {
	flags := &policiesTest{}
	cmd := &cobra.Command{
		Use:   "test FILE...",
		Short: "Say what policies would expose and hide, and what would change",
		Long: `test says of every DeviceExposurePolicy in the files what is wrong with it or remarkable, which devices of the machine it would
expose and hide, and of which another policy decides. Then it lists which devices would be offered that are not offered now,
no more, or otherwise, and which claims have them.

The policies are taken as kubectl apply would take them: beside those that the driver of this node knows, in place of those of
the same name; with --alone in place of all. With --policies nothing is asked of the driver: then that file is what is there
now. The machine may be one that "netdra facts" has recorded.

Exit status: 0 the policies are valid, 1 one is not, 2 a file, the machine or the driver can't be read.`,
		Example: `  # on a node, before kubectl apply
  sudo netdra policies test policies.yaml

  # anywhere, for a recorded machine, against what is in Git
  git show HEAD:policies.yaml | netdra policies test policies.yaml --policies - --alone --from worker-1`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			if err := checkForm(flags.form); err != nil {
				return err
			}
			return flags.run(cmd.Context(), on, to, files)
		},
	}
	flags.addTo(cmd)
	_ = cmd.Flags().MarkHidden("filename") // the name of a flag that exists is no error
	set := cmd.Flags()
	set.StringArrayVar(&flags.old, "policies", nil, `YAML file of the policies that are there now, or "-" for stdin (default: those that the driver of this node knows)`)
	set.BoolVar(&flags.alone, "alone", false, "the policies are all that there will be")
	set.StringVar(&flags.socket, "socket", socketHere(), "where the driver of this node answers")
	formFlag(cmd, &flags.form)
	return cmd
}

// testedPolicies is the result.
type testedPolicies struct {
	Policies []testedPolicy  `json:"policies"`
	Changes  []change.Change `json:"changes"`
}

// testedPolicy is what is to be said of one policy.
type testedPolicy struct {
	Name string `json:"name"`
	// Invalid is why it would not be accepted.
	Invalid []string `json:"invalid,omitempty"`
	Remarks []string `json:"remarks,omitempty"`
	// Problems are those that this machine has with it.
	Problems []string `json:"problems,omitempty"`
	Exposes  []string `json:"exposes,omitempty"`
	Hides    []string `json:"hides,omitempty"`
	// Fails are devices for which it can't be evaluated; an exclude policy hides them.
	Fails []string `json:"fails,omitempty"`
	// Loses are devices that it matches, and of which another policy decides.
	Loses []string `json:"loses,omitempty"`
	// OtherNodes says that it is not for this node.
	OtherNodes bool `json:"otherNodes,omitempty"`
	// NotEvaluated says that it is so wrong that nodes would not ask it about devices.
	NotEvaluated bool `json:"notEvaluated,omitempty"`
}

func (f *policiesTest) run(ctx context.Context, on machine, to console, files []string) error {
	if len(f.files) > 0 {
		return usage("-f: say the files without it: netdra policies test FILE")
	}
	given, err := readPolicies(files, to.in)
	if err != nil {
		return err
	}
	before, err := f.before(ctx, on, to)
	if err != nil {
		return err
	}
	after, err := before.with(f, on, replaced(before.policies, given, f.alone))
	if err != nil {
		return err
	}
	tested := testedPolicies{Policies: []testedPolicy{}, Changes: change.Compare(before.offers(), after.offers())}
	for i := range given {
		tested.Policies = append(tested.Policies, after.testPolicy(&given[i]))
	}
	for i := range tested.Changes {
		tested.Changes[i].HeldBy = before.heldBy(tested.Changes[i].Pool, tested.Changes[i].Name)
	}
	if f.form != formText {
		err = printResult(to.out, f.form, tested)
	} else {
		tested.print(newPrinter(to.out))
	}
	if err == nil && slices.ContainsFunc(tested.Policies, func(p testedPolicy) bool { return len(p.Invalid) > 0 }) {
		err = &exitError{code: exitFailed, err: errShown}
	}
	return err
}

// before is the machine with the policies that are there now.
func (f *policiesTest) before(ctx context.Context, on machine, to console) (*seen, error) {
	if len(f.old) == 0 && f.from == "" {
		if err := f.findPlugins(ctx); err != nil {
			return nil, err
		}
		return f.live(ctx, on, f.socket)
	}
	var policies []policyapi.DeviceExposurePolicy
	if len(f.old) > 0 {
		var err error
		if policies, err = readPolicies(f.old, to.in); err != nil {
			return nil, fmt.Errorf("--policies: %w", err)
		}
	}
	facts, err := f.facts(ctx)
	if err != nil {
		return nil, err
	}
	return (&seen{facts: facts}).with(f, on, policies)
}

// findPlugins asks the driver which CNI plugins it sees, unless they were given: devices are offered for those only.
func (f *policiesTest) findPlugins(ctx context.Context) error {
	var state nodestate.State
	if err := newDriverClient(f.socket).read(ctx, "/state", &state); err != nil || len(f.plugins) > 0 {
		return err
	}
	f.plugins = state.CNIPlugins
	return nil
}

// with is the same machine with other policies.
func (s *seen) with(f *policiesTest, on machine, policies []policyapi.DeviceExposurePolicy) (*seen, error) {
	if err := f.complete(on, policies); err != nil {
		return nil, err
	}
	other := &seen{facts: s.facts, features: f.features, policies: policies, claims: s.claims, live: s.live}
	other.decision = policy.Resolve(s.facts, policies, policy.Node{Name: f.node, Labels: f.labels})
	var err error
	other.result, err = draslices.Build(f.node, other.decision, f.features)
	return other, err
}

// replaced are the policies that would be there.
func replaced(old, given []policyapi.DeviceExposurePolicy, alone bool) []policyapi.DeviceExposurePolicy {
	if alone {
		return given
	}
	kept := slices.DeleteFunc(slices.Clone(old), func(p policyapi.DeviceExposurePolicy) bool {
		return slices.ContainsFunc(given, func(g policyapi.DeviceExposurePolicy) bool { return g.Name == p.Name })
	})
	return append(kept, given...)
}

// offers are the devices as they are published.
func (s *seen) offers() []change.Offer {
	published := upcoming.FromResult(s.result)
	var offers []change.Offer
	for i := range s.result.Entries {
		entry := &s.result.Entries[i]
		row := sliceRow(entry, publishedAs(published, entry))
		installed := s.installed(entry)
		offers = append(offers, change.Offer{
			Pool: entry.Pool, Name: entry.Name, Policy: entry.Persona.Policy, Use: row[3], Plugins: strings.Join(installed, ", "), Capacity: row[4], Consumes: row[5],
		})
	}
	return offers
}

func (s *seen) heldBy(pool, name string) []string {
	var claims []string
	for i := range s.claims {
		if s.claims[i].Holds(pool, name) {
			claims = append(claims, s.claims[i].Claim.String())
		}
	}
	return claims
}

// testPolicy says what comes of one policy.
func (s *seen) testPolicy(p *policyapi.DeviceExposurePolicy) testedPolicy {
	tested := testedPolicy{Name: p.Name}
	invalid, remarks := policy.Check(p)
	tested.Remarks = remarks
	for _, problem := range invalid {
		tested.Invalid = append(tested.Invalid, problem.Error())
	}
	for _, problem := range slices.Concat(s.decision.Problems, s.result.Problems) {
		known := len(invalid) > 0 || slices.Contains(remarks, problem.Message) // then it is the same, perhaps in other words
		if problem.Policy == p.Name && !known {
			tested.Problems = append(tested.Problems, problem.String())
		}
	}
	for i := range s.decision.Devices {
		device := &s.decision.Devices[i]
		for _, reason := range device.Reasons {
			if reason.Policy != p.Name {
				continue
			}
			name := string(device.Device.Name)
			switch reason.Outcome {
			case policy.Exposes:
				tested.Exposes = append(tested.Exposes, name)
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
	return tested
}

// print writes it for people.
func (t *testedPolicies) print(out *printer) {
	for i := range t.Policies {
		t.Policies[i].print(out)
	}
	out.section("What would change")
	if len(t.Changes) == 0 {
		out.say("nothing")
	}
	for i := range t.Changes {
		printChange(out, &t.Changes[i])
	}
}

func (t *testedPolicy) print(out *printer) {
	if len(t.Invalid) > 0 {
		out.bad("policy %s would not be accepted: %s", t.Name, strings.Join(t.Invalid, "; "))
	} else {
		out.good("policy %s", t.Name)
	}
	for _, text := range slices.Concat(t.Remarks, t.Problems) {
		out.warn("%s", text)
	}
	if t.OtherNodes {
		out.say("  is not for this node")
		return
	}
	if t.NotEvaluated {
		out.say("  is not evaluated for devices until that is corrected")
		return
	}
	for _, row := range []struct {
		does    string
		devices []string
	}{{"exposes", t.Exposes}, {"hides", t.Hides}, {"can't be evaluated for", t.Fails}, {"leaves to another policy", t.Loses}} {
		if len(row.devices) > 0 {
			out.say("  %s %s: %s", row.does, plural(len(row.devices), "device"), strings.Join(row.devices, ", "))
		}
	}
	if len(t.Exposes)+len(t.Hides)+len(t.Fails)+len(t.Loses) == 0 {
		out.say("  matches no device of this machine")
	}
}

func printChange(out *printer, c *change.Change) {
	switch c.Kind {
	case change.Added:
		out.say("%s %s: offered by policy %s, %s, for %s", out.colour(green, "+"), c.Name, c.Offer.Policy, c.Offer.Use, c.Offer.Plugins)
	case change.Removed:
		out.say("%s %s: not offered any more", out.colour(red, "-"), c.Name)
	case change.Changed:
		var texts []string
		for _, field := range c.Fields {
			texts = append(texts, fmt.Sprintf("%s %s → %s", field.Name, orDefault(field.Before, "-"), orDefault(field.After, "-")))
		}
		out.say("%s %s: %s", out.colour(yellow, "~"), c.Name, strings.Join(texts, "; "))
	}
	if len(c.HeldBy) > 0 {
		out.warn("  claim %s has it, and keeps it as it is until it is released", strings.Join(c.HeldBy, ", "))
	}
}
