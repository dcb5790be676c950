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

// rowsOf returns the rows of the device table. Devices that differ only in their names share a row, so a thousand free
// virtual functions become one row.
func rowsOf(node *Node, used *use) []Row {
	t := newRowBuilder(node, used)
	decided := make([]*policy.DeviceDecision, 0, len(node.Decision.Devices))
	for i := range node.Decision.Devices {
		decided = append(decided, &node.Decision.Devices[i])
	}
	slices.SortFunc(decided, func(a, b *policy.DeviceDecision) int { return compareDevices(&a.Device, &b.Device) })
	var rows []Row
	index := map[string]int{} // by key of the row
	for _, d := range decided {
		row := t.row(d)
		key := row.key(&d.Device)
		if i, known := index[key]; known {
			rows[i].Members = append(rows[i].Members, row.Members...)
			rows[i].Held = append(rows[i].Held, row.Held...)
			continue
		}
		index[key] = len(rows)
		rows = append(rows, row)
	}
	for i := range rows {
		rows[i].ID = fmt.Sprintf("d%d", i)
		rows[i].finish()
	}
	return rows
}

// compareDevices sorts virtual functions after their physical function, by index.
func compareDevices(a, b *discovery.Device) int {
	return cmp.Or(cmp.Compare(cmp.Or(a.PFName, a.Name), cmp.Or(b.PFName, b.Name)), cmp.Compare(a.VFIndex, b.VFIndex),
		cmp.Compare(a.Name, b.Name))
}

// rowBuilder indexes the data about devices by name.
type rowBuilder struct {
	used     *use
	entries  map[string][]*draslices.Entry
	problems map[string][]string
	// carried lists the upper links and ports of each device.
	carried map[string][]string
}

// newRowBuilder groups entries, problems and upper links by device once for all rows.
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
			row.What = nil // the last known facts no longer apply
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

// otherNames returns the interface name if it differs from the device name, and the alternative names. The name of a
// virtual function is derived from its physical function.
func otherNames(d *discovery.Device) string {
	var names []string
	if d.Interface != "" && d.Interface != d.Name {
		names = append(names, string(d.Interface))
	}
	return strings.Join(append(names, d.AltNames...), ", ")
}

// key returns the key of a row: all of its content except the names of the device and its entries, and the claims that
// hold them. Physical functions never share a row. Everything that the page shows about a device must be part of the
// key; otherwise devices that differ would share a row.
func (r *Row) key(device *discovery.Device) string {
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

// finish sets the row's label, and removes names that would be ambiguous or redundant.
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

// stateOf returns the state of a device with these entries. If the entries differ, the state that matters most to an
// administrator takes precedence.
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

// describeDevice returns the facts that users look for about a device, except its name and address.
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

// describeTaint explains a taint's value.
func describeTaint(value string) string {
	switch value {
	case "gone":
		return "gone: a claim holds the device, but it no longer exists on the node"
	case "withdrawn":
		return "withdrawn: a claim holds the device, but no policy exposes it any longer"
	case "quarantined":
		return "quarantined: the cleanup after an earlier pod failed"
	case "no-carrier":
		return "no-carrier: the link has no carrier"
	}
	return value
}

// hiddenBy returns the reason why a device is not exposed. An exclusion takes precedence over policies that would
// expose the device.
func hiddenBy(d *policy.DeviceDecision) string {
	for _, reason := range d.Reasons {
		if reason.Outcome == policy.Excludes || reason.Outcome == policy.Failed {
			return reason.String()
		}
	}
	if len(d.Personas) > 0 {
		return "it cannot be published as its policy defines"
	}
	return "no policy matches it"
}
