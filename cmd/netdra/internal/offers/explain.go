package offers

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
	"github.com/dra-networking/dra-network-driver/policy"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// ExplainOptions are the flags of "netdra explain".
type ExplainOptions struct {
	Inputs
	Form string
}

// Explain prints the reasons why a device is or is not offered.
func (f *ExplainOptions) Explain(ctx context.Context, deps osdeps.Deps, streams printer.Streams, name string) error {
	node, err := f.Read(ctx, deps, streams)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(node.Decision.Devices, func(d policy.DeviceDecision) bool { return node.hasName(&d, name) })
	if i < 0 {
		return node.noDevice(name)
	}
	explained := node.Explain(&node.Decision.Devices[i])
	return exit.Check(printer.Show(streams.Out, f.Form, explained, explained.print), !explained.usable())
}

// Device returns a published device in the form shown by "netdra devices"; nil if the driver was not queried or does
// not publish the device.
func (s *Snapshot) Device(pool, name string) *nodeclient.Device {
	for i := range s.Devices {
		if s.Devices[i].Pool == pool && s.Devices[i].Name == name {
			return &s.Devices[i]
		}
	}
	return nil
}

// heldBy returns the names of the claims that hold a published device; nil if the driver was not queried.
func (s *Snapshot) heldBy(pool, name string) []string {
	var claims []string
	if s.Answers == nil {
		return nil
	}
	for _, holding := range nodestate.Holdings(s.Answers.Claims, s.Answers.State.Refused) {
		if holding.Holds(pool, name) {
			claims = append(claims, holding.Claim.String())
		}
	}
	return claims
}

// Explanation contains the reasons why a device is or is not offered.
type Explanation struct {
	Device     string              `json:"device"`
	Type       string              `json:"type"`
	PCIAddress string              `json:"pciAddress,omitempty"`
	RDMA       *ExplainedRDMA      `json:"rdma,omitempty"`
	Versions   nodeclient.Versions `json:"versions"`
	// Live reports whether the node's driver was queried. If it was, the holders of the devices are known.
	Live     bool               `json:"live"`
	Entries  []ExplainedEntry   `json:"entries"`
	Policies []ExplainedOutcome `json:"policies"`
	Problems []string           `json:"problems,omitempty"`
}

// ExplainedRDMA describes a device's RDMA capabilities; see discovery.Device.
type ExplainedRDMA struct {
	Devices   []string `json:"devices"`
	LinkLayer string   `json:"linkLayer,omitempty"`
	Netns     string   `json:"netns,omitempty"`
}

func explainRDMA(d *discovery.Device) *ExplainedRDMA {
	if !d.RDMA {
		return nil
	}
	return &ExplainedRDMA{Devices: append([]string{}, d.RDMADevices...), LinkLayer: d.RDMALinkLayer, Netns: d.RDMANetns}
}

// ExplainedEntry describes one of the entries under which a device is published.
type ExplainedEntry struct {
	Name     string   `json:"name"`
	Pool     string   `json:"pool"`
	Use      string   `json:"use"`
	Plugins  []string `json:"plugins"`
	Capacity string   `json:"capacity,omitempty"`
	Consumes string   `json:"consumes,omitempty"`
	Policy   string   `json:"policy"`
	// Attributes are the attributes added by the policy, followed by those from attribute files on the node.
	Attributes []ExplainedAttribute `json:"attributes,omitempty"`
	// HeldBy lists the claims that hold the device, as namespace/name.
	HeldBy []string `json:"heldBy,omitempty"`
	// State is gone, lost or withdrawn, as in "netdra devices"; otherwise empty.
	State string `json:"state,omitempty"`
	// NoPlugin is the reason why no plugin of the entry works on the node. It is empty if one of them works, or if the
	// entry represents a link's bandwidth, which needs no plugin.
	NoPlugin string `json:"noPlugin,omitempty"`
	// Device is the entry in the form shown by "netdra devices"; nil if the driver was not queried.
	Device *nodeclient.Device `json:"-"`
}

// ExplainedAttribute is an attribute added by a policy or by an attribute file on the node.
type ExplainedAttribute struct {
	Name string `json:"name"`
	// Value is the value in YAML syntax; empty if the device does not have the attribute.
	Value string `json:"value,omitempty"`
	// Source is the field in the policy's exposure that defines the attribute, or a reference to the node's attribute
	// files.
	Source string `json:"source"`
	// Absent is the reason why the device does not have the attribute.
	Absent string `json:"absent,omitempty"`
}

// ExplainedOutcome is the outcome of one policy for the device.
type ExplainedOutcome struct {
	Policy  string `json:"policy"`
	Outcome string `json:"outcome"`
	Why     string `json:"why,omitempty"`
}

// Explain returns the reasons why a device is or is not offered. A problem that is not related to any device is related
// to a policy; it is included if that policy produced any of the device's entries.
func (s *Snapshot) Explain(decided *policy.DeviceDecision) *Explanation {
	e := &Explanation{Device: string(decided.Device.Name), Type: decided.Device.Type,
		PCIAddress: string(decided.Device.PCIAddress), RDMA: explainRDMA(&decided.Device),
		Versions: nodeclient.VersionsOf(s.Answers), Live: s.Answers != nil, Entries: []ExplainedEntry{}}
	for j := range s.Result.Entries {
		if entry := &s.Result.Entries[j]; entry.Device.Name == decided.Device.Name {
			e.Entries = append(e.Entries, s.entry(entry))
		}
	}
	e.Entries = append(e.Entries, s.withdrawn(&decided.Device, e.Entries)...)
	for _, reason := range decided.Reasons {
		e.Policies = append(e.Policies, ExplainedOutcome{Policy: reason.Policy, Outcome: string(reason.Outcome),
			Why: reason.Message})
	}
	for i := range e.Entries {
		if device := e.Entries[i].Device; device != nil && device.Lost {
			e.Problems = append(e.Problems, device.Name+": "+device.Why)
		}
	}
	for _, problem := range slices.Concat(s.Decision.Problems, s.Result.Problems) {
		ofPolicy := problem.Device == "" && slices.ContainsFunc(e.Entries,
			func(entry ExplainedEntry) bool { return entry.Policy == problem.Policy })
		isReason := slices.ContainsFunc(decided.Reasons, func(r policy.Reason) bool { // printed as reasons
			return r.Policy == problem.Policy && r.Message == problem.Message
		})
		if !isReason && (problem.Device == e.Device || ofPolicy) {
			e.Problems = append(e.Problems, problem.String())
		}
	}
	return e
}

func (s *Snapshot) hasName(decided *policy.DeviceDecision, name string) bool {
	device := &decided.Device
	return name == string(device.Name) || name == string(device.Interface) || name == string(device.PCIAddress) ||
		slices.Contains(device.AltNames, name) ||
		slices.ContainsFunc(s.Result.Entries, func(e draslices.Entry) bool {
			return e.Name == name &&
				e.Device.Name == device.Name
		})
}

func (s *Snapshot) noDevice(name string) error {
	names := make([]string, 0, len(s.Decision.Devices))
	for i := range s.Decision.Devices {
		names = append(names, string(s.Decision.Devices[i].Device.Name))
	}
	const most = 20
	if len(names) > most {
		names = append(names[:most], fmt.Sprintf("and %d more", len(names)-most))
	}
	return fmt.Errorf("cannot find device %s; devices of this machine: %s", name,
		cmp.Or(strings.Join(names, ", "), "none"))
}

// entry describes one of a device's entries, using the same values as "netdra slices".
func (s *Snapshot) entry(entry *draslices.Entry) ExplainedEntry {
	row := sliceRow(entry, s.published[draslices.EntryID{Pool: entry.Pool, Name: entry.Name}])
	e := ExplainedEntry{Name: entry.Name, Pool: entry.Pool, Use: row[3],
		Plugins: s.Features.Working(entry.Persona.Plugins), Capacity: row[4], Consumes: row[5],
		Policy: entry.Persona.Policy, Attributes: explainAttributes(entry),
		HeldBy: s.heldBy(entry.Pool, entry.Name), Device: s.Device(entry.Pool, entry.Name)}
	if len(e.Plugins) == 0 && !entry.Persona.IsBandwidth() {
		e.NoPlugin = s.Features.WhyNoneWorks(entry.Persona.Plugins)
	}
	held := []string{nodeclient.Gone, nodeclient.Lost, nodeclient.Withdrawn}
	if e.Device != nil && slices.Contains(held, e.Device.State) {
		e.State = e.Device.State
	}
	return e
}

// withdrawn returns the entries that no policy offers but that claims still hold, except those in known.
func (s *Snapshot) withdrawn(d *discovery.Device, known []ExplainedEntry) (entries []ExplainedEntry) {
	for i := range s.Devices {
		device := &s.Devices[i]
		same := device.PCIAddress == string(d.PCIAddress)
		if d.PCIAddress == "" {
			same = device.PCIAddress == "" && device.Interface == string(d.Interface)
		}
		if device.State != nodeclient.Withdrawn || !same || slices.ContainsFunc(known, func(e ExplainedEntry) bool {
			return e.Pool == device.Pool && e.Name == device.Name
		}) {
			continue
		}
		entries = append(entries, ExplainedEntry{Name: device.Name, Pool: device.Pool, Use: device.Use,
			Plugins: device.Plugins, Policy: device.Policy, HeldBy: s.heldBy(device.Pool, device.Name),
			State: nodeclient.Withdrawn, Device: device})
	}
	return entries
}

func (e *Explanation) usable() bool {
	return slices.ContainsFunc(e.Entries, func(entry ExplainedEntry) bool {
		return entry.NoPlugin == "" && entry.State == ""
	})
}

// unusableBy returns the reason why no class can select any of the entries. There must be at least one entry.
func (e *Explanation) unusableBy() string {
	for i := range e.Entries {
		switch e.Entries[i].State {
		case nodeclient.Gone:
			return "no longer exists on the node, and stays published until the claims that hold it are released"
		case nodeclient.Lost:
			return "is published, but its interface has disappeared from the pod that uses it"
		case nodeclient.Withdrawn:
			return "is withdrawn: no policy offers it in this way anymore, and it stays published until the claims " +
				"that hold it are released"
		}
	}
	return "is published, but no class can select it: " + e.Entries[0].NoPlugin
}

func (e *Explanation) print(out *printer.Printer) {
	called := e.Type + " " + e.Device
	if e.PCIAddress != "" {
		called += " (" + e.PCIAddress + ")"
	}
	switch {
	case len(e.Entries) == 0:
		out.Bad("%s is not offered: %s", called, e.HiddenBy())
	case !e.usable():
		out.Bad("%s %s", called, e.unusableBy())
	default:
		out.Good("%s is offered as %s", called, printer.Plural(len(e.Entries), "device"))
	}
	if e.RDMA != nil {
		devices := "RDMA " + cmp.Or(strings.Join(e.RDMA.Devices, ", "), "without a device in this network namespace")
		out.Printf("  %s", printer.WithDetails(devices, e.RDMA.LinkLayer, e.RDMA.Netns))
	}
	if len(e.Entries) > 0 {
		rows := [][]string{{"DEVICE", "POOL", "USE", "CNI PLUGINS", "CAPACITY", "CONSUMES", "POLICY"}}
		for i := range e.Entries {
			entry := &e.Entries[i]
			rows = append(rows, []string{entry.Name, entry.Pool, entry.Use,
				cmp.Or(strings.Join(entry.Plugins, ", "), "none"), cmp.Or(entry.Capacity, "-"),
				cmp.Or(entry.Consumes, "-"), entry.Policy})
		}
		if e.Live { // otherwise, the holders are unknown
			rows[0] = append(rows[0], "HELD BY")
			for i := range e.Entries {
				rows[i+1] = append(rows[i+1], cmp.Or(strings.Join(e.Entries[i].HeldBy, ", "), "-"))
			}
		}
		out.Printf("")
		out.Table(rows)
	}
	e.printAttributes(out)
	for _, problem := range e.Problems {
		out.Warn("%s", problem)
	}
	out.Section("Result of each policy")
	rows := [][]string{{"POLICY", "OUTCOME", "WHY"}}
	for _, outcome := range e.Folded() {
		rows = append(rows, []string{outcome.Policy, outcome.Outcome, cmp.Or(outcome.Why, "-")})
	}
	out.Table(rows)
}

// fewestFolded is the minimum number of policies without effect for the same reason that are folded into one row.
const fewestFolded = 3

// Folded returns the outcomes of all policies, with a single row for policies that have no effect for the same reason.
// If a node has many policies, most of them apply to other nodes or devices and would obscure the relevant ones.
func (e *Explanation) Folded() []ExplainedOutcome {
	idle := func(o ExplainedOutcome) bool {
		return o.Outcome == string(policy.NoMatch) || o.Outcome == string(policy.OtherNodes)
	}
	counts := map[ExplainedOutcome]int{}
	for _, outcome := range e.Policies {
		outcome.Policy = ""
		counts[outcome]++
	}
	var rows, tail []ExplainedOutcome
	for _, outcome := range e.Policies {
		same := outcome
		same.Policy = ""
		switch n := counts[same]; {
		case !idle(outcome) || n > 0 && n < fewestFolded:
			rows = append(rows, outcome)
		case n > 0:
			same.Policy = fmt.Sprintf("%d policies", n)
			tail = append(tail, same)
			counts[ExplainedOutcome{Outcome: outcome.Outcome, Why: outcome.Why}] = 0
		}
	}
	return append(rows, tail...)
}

// HiddenBy returns the reason why a device without entries is not offered.
func (e *Explanation) HiddenBy() string {
	for _, outcome := range e.Policies {
		switch outcome.Outcome {
		case string(policy.Excludes):
			return fmt.Sprintf("policy %s %s it: %s", outcome.Policy, outcome.Outcome, outcome.Why)
		case string(policy.Failed): // the reason is long and already in the policy table
			return fmt.Sprintf("policy %s failed, which hides it; see below", outcome.Policy)
		}
	}
	if slices.ContainsFunc(e.Policies, func(o ExplainedOutcome) bool { return o.Outcome == string(policy.Exposes) }) {
		return "the settings of its policy cannot be published" // the problems contain the reason
	}
	return "no policy matches it"
}

// explainAttributes returns the attributes added by an entry's policy, followed by those from attribute files on the
// node.
func explainAttributes(entry *draslices.Entry) []ExplainedAttribute {
	var explained []ExplainedAttribute
	for _, source := range entry.Persona.AttributeSources {
		attribute := ExplainedAttribute{Name: string(source.Name), Source: source.Source, Absent: source.Absent}
		if value, has := entry.Persona.AdditionalAttributes[source.Name]; has {
			attribute.Value = attributeText(value)
		}
		explained = append(explained, attribute)
	}
	for _, name := range slices.Sorted(maps.Keys(entry.Device.Attributes)) {
		if _, replaced := entry.Persona.AdditionalAttributes[name]; !replaced {
			explained = append(explained, ExplainedAttribute{Name: string(name), Source: "attribute files of the node",
				Value: attributeText(entry.Device.Attributes[name])})
		}
	}
	return explained
}

// attributesText lists the attributes added by an entry's policy. The order is fixed, because texts are compared to
// find changes.
func attributesText(entry *draslices.Entry) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(entry.Persona.AdditionalAttributes)) {
		all = append(all, fmt.Sprintf("%s=%s", name, attributeText(entry.Persona.AdditionalAttributes[name])))
	}
	return strings.Join(all, " ")
}

// attributeText returns a value in YAML syntax. It distinguishes between "7" and 7, as constraints do.
func attributeText(value resourceapi.DeviceAttribute) string {
	switch {
	case value.StringValue != nil:
		return strconv.Quote(*value.StringValue)
	case value.IntValue != nil:
		return fmt.Sprint(*value.IntValue)
	case value.BoolValue != nil:
		return fmt.Sprint(*value.BoolValue)
	case value.VersionValue != nil:
		return "version " + *value.VersionValue
	}
	return "a list"
}

// printAttributes prints the entries' attributes from policies and attribute files; if there are none, it prints
// nothing. Entries from the same policy have the same attributes.
func (e *Explanation) printAttributes(out *printer.Printer) {
	rows := [][]string{{"ATTRIBUTE", "VALUE", "POLICY", "FROM"}}
	seen := map[string]bool{}
	for i := range e.Entries {
		entry := &e.Entries[i]
		if seen[entry.Policy] {
			continue
		}
		seen[entry.Policy] = true
		for _, a := range entry.Attributes {
			value, source := a.Value, a.Source
			if a.Absent != "" {
				value, source = "-", a.Source+": "+a.Absent
			}
			rows = append(rows, []string{a.Name, value, entry.Policy, source})
		}
	}
	if len(rows) > 1 {
		out.Section("Attributes by policy")
		out.Table(rows)
	}
}
