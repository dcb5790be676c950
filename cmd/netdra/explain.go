package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/inventory"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
	"github.com/dra-networking/dra-network-driver/slices/upcoming"
)

func explainCommand(on machine, to console) *cobra.Command {
	flags := &preview{}
	var socket, form string
	cmd := &cobra.Command{
		Use:   "explain DEVICE",
		Short: "Say why a device is offered as it is, or why not",
		Long: `explain says what the DeviceExposurePolicies make of one network device: under which names it is offered, what each of
them takes of what devices of its pool share, what came of every policy and why, and, of the driver on this node, which claims
hold it.

DEVICE is the name of its interface, its PCI address, or a name under which it is published. Without -f the driver of this node
is asked for the policies; with -f nothing is asked of anybody, and the machine may be one that "netdra facts" has recorded.

Exit status: 0 the device is offered, 1 it is not, is gone, or has no CNI plugin that is installed, 2 there is no such device, or the policies can't be read.`,
		Example: `  # on a node, as root
  netdra explain eth0

  # before policies are applied, for a recorded machine
  netdra explain 0000:03:00.2 -f policies.yaml --from worker-1
  netdra explain eth0-macvlan -f policies.yaml --from worker-1 -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, arguments []string) error {
			if err := checkForm(form); err != nil {
				return err
			}
			node, err := flags.look(cmd.Context(), on, to, socket)
			if err != nil {
				return err
			}
			explained, err := node.explain(arguments[0])
			if err != nil {
				return err
			}
			if form != formText {
				err = printResult(to.out, form, explained)
			} else {
				err = explained.print(newPrinter(to.out))
			}
			if err == nil && !explained.usable() {
				err = &exitError{code: exitFailed, err: errShown}
			}
			return err
		},
	}
	flags.addTo(cmd)
	cmd.ValidArgsFunction = completeFrom(&socket, deviceNames)
	cmd.Flags().StringVar(&socket, "socket", socketHere(), "where the driver of this node answers, if there is no -f")
	formFlag(cmd, &form)
	return cmd
}

// seen is a node as far as explanations need it.
type seen struct {
	facts    discovery.Facts
	features draslices.Features
	policies []policyapi.DeviceExposurePolicy
	decision policy.Decision
	result   draslices.Result
	claims   []nodestate.Claim  // that the driver has prepared
	devices  []inventory.Device // that it publishes
	live     bool               // the driver was asked
	state    *nodestate.State   // of the driver; nil if it was not asked
}

// look takes policies from files, or everything that it can from the driver of this node.
func (f *preview) look(ctx context.Context, on machine, to console, socket string) (*seen, error) {
	if len(f.files) == 0 && f.from != "" {
		return nil, errors.New("a recording needs policies: give a file of them with -f")
	}
	if len(f.files) == 0 {
		return f.live(ctx, on, socket)
	}
	decision, err := f.decide(ctx, on, to.in)
	if err != nil {
		return nil, err
	}
	result, err := draslices.Build(f.node, decision, f.features)
	if err != nil {
		return nil, fmt.Errorf("--node: %w", err)
	}
	return &seen{features: f.features, decision: decision, result: result}, nil
}

// live asks the driver of this node what it knows, and reads the devices that are on the node itself. Those in pods are as they
// were when their claims were prepared.
func (f *preview) live(ctx context.Context, on machine, socket string) (*seen, error) {
	client := newDriverClient(socket)
	var believes nodestate.PolicyInputs
	var published []draslices.Entry
	var claims []nodestate.Claim
	var sandboxes []nodestate.Sandbox
	var state nodestate.State
	for path, into := range map[string]any{"/policies": &believes, "/published": &published, "/claims": &claims, "/sandboxes": &sandboxes, "/state": &state} {
		if err := client.read(ctx, path, into); err != nil {
			return nil, err
		}
	}
	facts, err := on.facts(ctx, state.Addresses)
	if err != nil {
		return nil, err
	}
	facts = withPublished(facts, published)
	f.node, f.labels = believes.Node, believes.Labels
	if f.plugins == nil {
		f.plugins = state.CNIPlugins
	}
	if err := f.complete(on, believes.Policies); err != nil {
		return nil, err
	}
	decision := policy.Resolve(facts, believes.Policies, policy.Node{Name: f.node, Labels: f.labels})
	result, err := draslices.Build(f.node, decision, f.features)
	devices := inventory.Devices(&nodestate.Answers{Published: published, Claims: claims, Sandboxes: sandboxes})
	return &seen{
		facts: facts, features: f.features, policies: believes.Policies, decision: decision, result: result, claims: claims, devices: devices,
		live: true, state: &state,
	}, err
}

// withPublished adds devices that the driver publishes and that are not on the node itself now.
func withPublished(facts discovery.Facts, published []draslices.Entry) discovery.Facts {
	known := map[discovery.IfName]bool{}
	for i := range facts.Devices {
		known[facts.Devices[i].Name] = true
	}
	for i := range published {
		if device := published[i].Device; !known[device.Name] {
			facts = facts.With(device)
		}
	}
	return facts
}

// explanation is what there is to say of one device.
type explanation struct {
	Device     string   `json:"device"`
	Type       string   `json:"type"`
	PCIAddress string   `json:"pciAddress,omitempty"`
	Versions   versions `json:"versions"`
	// Live says that the driver of the node was asked, so that it is known who holds what.
	Live     bool               `json:"live"`
	Entries  []explainedEntry   `json:"entries"`
	Policies []explainedOutcome `json:"policies"`
	Problems []string           `json:"problems,omitempty"`
}

// explainedEntry is one name under which it is offered.
type explainedEntry struct {
	Name     string   `json:"name"`
	Pool     string   `json:"pool"`
	Use      string   `json:"use"`
	Plugins  []string `json:"plugins"`
	Capacity string   `json:"capacity,omitempty"`
	Consumes string   `json:"consumes,omitempty"`
	Policy   string   `json:"policy"`
	// HeldBy are claims, as namespace/name.
	HeldBy []string `json:"heldBy,omitempty"`
	// State is gone or lost, as netdra devices says it; empty otherwise.
	State string `json:"state,omitempty"`
}

// explainedOutcome is what came of one policy.
type explainedOutcome struct {
	Policy  string `json:"policy"`
	Outcome string `json:"outcome"`
	Why     string `json:"why,omitempty"`
}

// explain finds a device by any of its names.
func (s *seen) explain(name string) (*explanation, error) {
	i := slices.IndexFunc(s.decision.Devices, func(d policy.DeviceDecision) bool { return s.isCalled(&d, name) })
	if i < 0 {
		return nil, s.noDevice(name)
	}
	decided := &s.decision.Devices[i]
	e := &explanation{Device: string(decided.Device.Name), Type: decided.Device.Type, PCIAddress: string(decided.Device.PCIAddress), Versions: versionsOf(s.state), Live: s.live, Entries: []explainedEntry{}}
	published := upcoming.FromResult(s.result)
	for j := range s.result.Entries {
		if entry := &s.result.Entries[j]; entry.Device.Name == decided.Device.Name {
			e.Entries = append(e.Entries, s.entry(entry, published))
		}
	}
	for _, reason := range decided.Reasons {
		e.Policies = append(e.Policies, explainedOutcome{Policy: reason.Policy, Outcome: string(reason.Outcome), Why: reason.Message})
	}
	e.Problems = append(e.Problems, s.lostOf(e)...)
	for _, problem := range slices.Concat(s.decision.Problems, s.result.Problems) {
		ofPolicy := problem.Device == "" && slices.ContainsFunc(e.Entries, func(entry explainedEntry) bool { return entry.Policy == problem.Policy })
		if problem.Device == e.Device || ofPolicy {
			e.Problems = append(e.Problems, problem.String())
		}
	}
	return e, nil
}

func (s *seen) isCalled(decided *policy.DeviceDecision, name string) bool {
	device := &decided.Device
	return name == string(device.Name) || name == string(device.Interface) || name == string(device.PCIAddress) || slices.Contains(device.AltNames, name) ||
		slices.ContainsFunc(s.result.Entries, func(e draslices.Entry) bool { return e.Name == name && e.Device.Name == device.Name })
}

func (s *seen) noDevice(name string) error {
	names := make([]string, 0, len(s.decision.Devices))
	for i := range s.decision.Devices {
		names = append(names, string(s.decision.Devices[i].Device.Name))
	}
	const most = 20
	if len(names) > most {
		names = append(names[:most], fmt.Sprintf("and %d more", len(names)-most))
	}
	return fmt.Errorf("there is no device %s: there are %s", name, orDefault(strings.Join(names, ", "), "none"))
}

func (s *seen) entry(entry *draslices.Entry, published upcoming.Node) explainedEntry {
	row := sliceRow(entry, publishedAs(published, entry))
	e := explainedEntry{Name: entry.Name, Pool: entry.Pool, Use: row[3], Plugins: s.installed(entry), Capacity: row[4], Consumes: row[5], Policy: entry.Persona.Policy}
	for i := range s.claims {
		if s.claims[i].Holds(entry.Pool, entry.Name) {
			e.HeldBy = append(e.HeldBy, s.claims[i].Claim.String())
		}
	}
	for i := range s.devices {
		device := &s.devices[i]
		if device.Pool == e.Pool && device.Name == e.Name && (device.State == inventory.Gone || device.State == inventory.Lost) {
			e.State = device.State
		}
	}
	return e
}

// lostOf says which pods have lost interfaces of the entries.
func (s *seen) lostOf(e *explanation) []string {
	var texts []string
	for i := range e.Entries {
		for j := range s.devices {
			device := &s.devices[j]
			if device.Pool == e.Entries[i].Pool && device.Name == e.Entries[i].Name && device.Lost {
				texts = append(texts, device.Name+": "+device.Why)
			}
		}
	}
	return texts
}

// installed are the CNI plugins of an entry that the node has: classes know it by those only.
func (s *seen) installed(entry *draslices.Entry) []string {
	return slices.DeleteFunc(slices.Clone(entry.Persona.Plugins), func(plugin string) bool { return !s.features.CNIBinaries.Has(plugin) })
}

// publishedAs is an entry as it is published.
func publishedAs(published upcoming.Node, entry *draslices.Entry) upcoming.Device {
	for _, slice := range published.Pools[entry.Pool] {
		for i := range slice.Devices {
			if slice.Devices[i].Name == entry.Name {
				return slice.Devices[i]
			}
		}
	}
	return upcoming.Device{}
}

// usable says whether a class can pick one of the entries.
func (e *explanation) usable() bool {
	return slices.ContainsFunc(e.Entries, func(entry explainedEntry) bool { return len(entry.Plugins) > 0 && entry.State == "" })
}

// unusableBy says why no class can pick an entry.
func (e *explanation) unusableBy() string {
	for i := range e.Entries {
		switch e.Entries[i].State {
		case inventory.Gone:
			return "does not exist on the node any more, and stays published until the claims that hold it are released"
		case inventory.Lost:
			return "is published, and its interface has vanished from the pod that has it"
		}
	}
	return "is published, and no class picks it: none of its CNI plugins is installed on the node"
}

// print writes it for people.
func (e *explanation) print(out *printer) error {
	called := e.Type + " " + e.Device
	if e.PCIAddress != "" {
		called += " (" + e.PCIAddress + ")"
	}
	switch {
	case len(e.Entries) == 0:
		out.bad("%s is not offered: %s", called, e.hiddenBy())
	case !e.usable():
		out.bad("%s %s", called, e.unusableBy())
	default:
		out.good("%s is offered as %s", called, plural(len(e.Entries), "device"))
	}
	if len(e.Entries) > 0 {
		rows := [][]string{{"DEVICE", "POOL", "USE", "CNI PLUGINS", "CAPACITY", "CONSUMES", "POLICY", "HELD BY"}}
		for i := range e.Entries {
			entry := &e.Entries[i]
			heldBy := "?" // nobody was asked
			if e.Live {
				heldBy = orDefault(strings.Join(entry.HeldBy, ", "), "-")
			}
			rows = append(rows, []string{entry.Name, entry.Pool, entry.Use, orDefault(strings.Join(entry.Plugins, ", "), "none"), entry.Capacity, entry.Consumes, entry.Policy, heldBy})
		}
		out.say("")
		out.table(rows)
	}
	for _, problem := range e.Problems {
		out.warn("%s", problem)
	}
	out.section("What came of each policy")
	rows := [][]string{{"POLICY", "OUTCOME", "WHY"}}
	for _, outcome := range e.Policies {
		rows = append(rows, []string{outcome.Policy, outcome.Outcome, orDefault(outcome.Why, "-")})
	}
	out.table(rows)
	return nil
}

func (e *explanation) hiddenBy() string {
	for _, outcome := range e.Policies {
		if outcome.Outcome == string(policy.Excludes) || outcome.Outcome == string(policy.Failed) {
			return fmt.Sprintf("policy %s %s it: %s", outcome.Policy, strings.Replace(outcome.Outcome, "failed", "failed, which hides", 1), outcome.Why)
		}
	}
	if slices.ContainsFunc(e.Policies, func(o explainedOutcome) bool { return o.Outcome == string(policy.Exposes) }) {
		return "what its policy wants can't be published" // the problems say why
	}
	return "no policy matches it"
}
