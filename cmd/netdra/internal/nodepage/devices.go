package nodepage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// rowsOf describes what there is to say of each device. Devices of which the same is said, apart from their names,
// share a row: a thousand virtual functions that are all free are one fact.
func rowsOf(node *Node, used *use) []Row {
	t := newRowBuilder(node, used)
	decided := make([]*policy.DeviceDecision, 0, len(node.Decision.Devices))
	for i := range node.Decision.Devices {
		decided = append(decided, &node.Decision.Devices[i])
	}
	slices.SortFunc(decided, func(a, b *policy.DeviceDecision) int { return compareDevices(&a.Device, &b.Device) })
	var rows []Row
	index := map[string]int{} // by what is said
	for _, d := range decided {
		row := t.row(d)
		said := row.said(&d.Device)
		if i, known := index[said]; known {
			rows[i].Members = append(rows[i].Members, row.Members...)
			rows[i].Held = append(rows[i].Held, row.Held...)
			continue
		}
		index[said] = len(rows)
		rows = append(rows, row)
	}
	for i := range rows {
		rows[i].ID = fmt.Sprintf("d%d", i)
		rows[i].finish()
	}
	return rows
}

// compareDevices puts virtual functions behind their physical one, by index.
func compareDevices(a, b *discovery.Device) int {
	return cmp.Or(cmp.Compare(cmp.Or(a.PFName, a.Name), cmp.Or(b.PFName, b.Name)), cmp.Compare(a.VFIndex, b.VFIndex),
		cmp.Compare(a.Name, b.Name))
}

// rowBuilder has of each device, by name, what is known of it in several places.
type rowBuilder struct {
	used     *use
	entries  map[string][]*draslices.Entry
	problems map[string][]string
	// carried are the links that stand on a device, or are its ports.
	carried map[string][]string
}

// newRowBuilder sorts entries, problems and dependents by device once, as each row asks for its own.
func newRowBuilder(node *Node, used *use) *rowBuilder {
	t := &rowBuilder{used: used, entries: map[string][]*draslices.Entry{}, problems: map[string][]string{},
		carried: map[string][]string{}}
	for i := range node.Result.Entries {
		entry := &node.Result.Entries[i]
		t.entries[string(entry.Device.Name)] = append(t.entries[string(entry.Device.Name)], entry)
	}
	for _, problem := range slices.Concat(node.Decision.Problems, node.Result.Problems) {
		t.problems[problem.Device] = append(t.problems[problem.Device], problem.Message)
	}
	for i := range node.Facts.Devices {
		d := &node.Facts.Devices[i]
		for _, below := range slices.Compact([]discovery.IfName{d.Master, d.Parent}) {
			t.carried[string(below)] = append(t.carried[string(below)], string(d.Name))
		}
	}
	return t
}

func (t *rowBuilder) row(d *policy.DeviceDecision) Row {
	device := &d.Device
	name := string(device.Name)
	row := Row{Type: device.Type, Members: []Member{{Name: name, Address: string(device.PCIAddress),
		Also: otherNames(device), RDMA: strings.Join(device.RDMADevices, ", ")}}, What: describeDevice(device)}
	if carried := t.carried[name]; len(carried) > 0 && name != "" {
		row.What = append(row.What, "carries "+ranges(carried))
	}
	for _, entry := range t.entries[name] {
		if isGone(entry) {
			row.What = nil // what it was does not say what it is
		}
		offer := t.used.offer(entry)
		row.Offers = append(row.Offers, offer)
		if offer.State == Unusable {
			row.Why = append(row.Why, t.used.features.WhyNoneWorks(entry.Persona.Plugins))
		}
		for _, claim := range t.used.holders[idOf(entry)] {
			row.Held = append(row.Held, Holding{Entry: entry.Name, Claim: claim})
		}
		for _, taint := range entry.Spec.Taints {
			row.Why = append(row.Why, describeTaint(taint.Value))
		}
	}
	row.State = stateOf(row.Offers)
	if row.State == Hidden {
		row.Why = append(row.Why, hiddenBy(d))
	}
	row.Why = append(row.Why, t.problems[name]...)
	slices.Sort(row.Why)
	row.Why = slices.Compact(row.Why)
	for _, reason := range d.Reasons {
		row.Outcomes = append(row.Outcomes, Outcome{Policy: reason.Policy, Outcome: string(reason.Outcome),
			Why: reason.Message})
	}
	return row
}

// otherNames are those of its interface: a virtual function is called after its physical one.
func otherNames(d *discovery.Device) string {
	var names []string
	if d.Interface != "" && d.Interface != d.Name {
		names = append(names, string(d.Interface))
	}
	return strings.Join(append(names, d.AltNames...), ", ")
}

// said is everything but the names of a device and of its entries, and of claims that hold them. A physical function
// speaks for itself. It is a key: whatever the page shows of a device must be in it, or rows are joined that differ.
func (r *Row) said(device *discovery.Device) string {
	offers := slices.Clone(r.Offers)
	for i := range offers {
		offers[i].Name = strings.TrimPrefix(offers[i].Name, r.Members[0].Name)
	}
	alone := ""
	if device.Type == discovery.TypePF {
		alone = string(device.Name)
	}
	return fmt.Sprintf("%q %q %q %q %q %q %q %q %q %d", alone, device.PFName, r.Type, r.What, offers, r.Why, r.Outcomes,
		device.Driver, device.PCIeRoot, device.NUMANode)
}

// finish gives the row its label, and leaves out names where it has several.
func (r *Row) finish() {
	names := make([]string, 0, len(r.Members))
	for _, member := range r.Members {
		names = append(names, member.Name)
	}
	r.Label = ranges(names)
	if len(r.Members) == 1 {
		if len(r.Offers) == 1 {
			for i := range r.Held {
				r.Held[i].Entry = ""
			}
		}
		return
	}
	for i := range r.Offers {
		r.Offers[i].Name = "each as " + suffixOrSelf(strings.TrimPrefix(r.Offers[i].Name, r.Members[0].Name))
	}
}

func suffixOrSelf(suffix string) string {
	if suffix == "" {
		return "itself"
	}
	return "…" + suffix
}

// stateOf is that of a device with such entries. The order is that of what an administrator has to know first.
func stateOf(offers []Offer) State {
	has := func(state State) bool {
		return slices.ContainsFunc(offers, func(o Offer) bool { return o.State == state })
	}
	for _, state := range []State{HeldBack, InUse, Full, Free, Offered, Blocked, Unusable} {
		if has(state) {
			return state
		}
	}
	return Hidden
}

// describeDevice are the facts of a device that people look for, apart from its name and address.
func describeDevice(d *discovery.Device) []string {
	var facts []string
	for _, fact := range []struct {
		holds bool
		text  string
	}{
		{d.LinkSpeed > 0, speed(d.LinkSpeed)},
		{d.Driver != "", "driver " + d.Driver},
		{d.OperState != "" && d.OperState != "unknown", "link " + d.OperState},
		{d.SRIOVCapable, fmt.Sprintf("%d of %d virtual functions", d.NumVFs, d.TotalVFs)},
		{d.RDMA, printer.WithDetails("RDMA", d.RDMALinkLayer, d.RDMANetns)},
		{d.VLANID != discovery.None && d.VLANID != 0, fmt.Sprintf("VLAN %d", d.VLANID)},
		{d.Parent != "", "on " + string(d.Parent)},
		{d.Master != "", "port of " + string(d.Master)},
		{d.BridgeType == "ovs", "Open vSwitch"},
		{d.Representor, "representor " + d.PortName},
		{d.DefaultRoute, "carries the node's traffic"},
	} {
		if fact.holds {
			facts = append(facts, fact.text)
		}
	}
	return facts
}

func speed(mbits int) string {
	if mbits%1000 == 0 {
		return fmt.Sprintf("%d Gbit/s", mbits/1000)
	}
	return fmt.Sprintf("%d Mbit/s", mbits)
}

// describeTaint describes what a taint's value means.
func describeTaint(value string) string {
	switch value {
	case "gone":
		return "gone: a claim holds it, but the machine has it no more"
	case "withdrawn":
		return "withdrawn: a claim holds it, but no policy gives it any more"
	case "quarantined":
		return "quarantined: what an earlier pod left on it could not be removed"
	case "no-carrier":
		return "no-carrier: its link has lost its carrier"
	}
	return value
}

// hiddenBy says why a device is not offered: what excludes it comes before the policies that would have offered it.
func hiddenBy(d *policy.DeviceDecision) string {
	for _, reason := range d.Reasons {
		if reason.Outcome == policy.Excludes || reason.Outcome == policy.Failed {
			return reason.String()
		}
	}
	if len(d.Personas) > 0 {
		return "what its policy wants cannot be published"
	}
	return "no policy matches it"
}
