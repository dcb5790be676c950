package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/offers"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
)

// States of devices if the driver was not queried or does not publish the device.
const (
	offered = "offered"
	hidden  = "hidden"
)

// area is a part of a machine: the devices below a PCIe root, the links without hardware, or the virtual functions of a
// physical function.
type area struct {
	Title     string
	Rows      []row
	Functions []area
}

// row is a device and its facts.
type row struct {
	*offers.Explanation
	Facts []string
}

// States returns the states of a device's entries.
func (r row) States() []string {
	if len(r.Entries) == 0 {
		return []string{hidden}
	}
	var states []string
	for i := range r.Entries {
		switch entry := &r.Entries[i]; {
		case entry.Device != nil:
			states = append(states, entry.Device.State)
		case entry.NoPlugin != "":
			states = append(states, nodeclient.Unusable)
		default:
			states = append(states, offered)
		}
	}
	return states
}

// Summary returns the number of devices in each state.
func (a area) Summary() string {
	counts := map[string]int{}
	for _, r := range a.Rows {
		counts[strings.Join(r.States(), ", ")]++
	}
	var texts []string
	for _, state := range slices.Sorted(maps.Keys(counts)) {
		texts = append(texts, fmt.Sprintf("%d %s", counts[state], state))
	}
	return fmt.Sprintf("%d virtual %s of %s: %s", len(a.Rows), plural(len(a.Rows), "function"), a.Title,
		strings.Join(texts, "; "))
}

// areasOf divides a machine into areas. Each device has exactly one row. NUMA nodes with their PCIe roots come first,
// and links without hardware come last. Virtual functions are listed below their physical function, unless that is not
// on the node, for example because the node is a virtual machine.
func areasOf(s *offers.Snapshot) []area {
	known := map[discovery.IfName]*discovery.Device{}
	var decided []*policy.DeviceDecision
	for i := range s.Decision.Devices {
		decided = append(decided, &s.Decision.Devices[i])
		known[decided[i].Device.Name] = &decided[i].Device
	}
	physical := func(d *discovery.Device) *discovery.Device { return cmp.Or(known[d.PFName], d) }
	slices.SortFunc(decided, func(a, b *policy.DeviceDecision) int {
		aRank, aTitle := place(physical(&a.Device))
		bRank, bTitle := place(physical(&b.Device))
		return cmp.Or(cmp.Compare(aRank, bRank), cmp.Compare(aTitle, bTitle),
			cmp.Compare(physical(&a.Device).Name, physical(&b.Device).Name),
			cmp.Compare(a.Device.VFIndex, b.Device.VFIndex), cmp.Compare(a.Device.Name, b.Device.Name))
	})
	var areas []area
	for _, d := range decided {
		_, title := place(physical(&d.Device))
		areas = extend(areas, title)
		last := &areas[len(areas)-1]
		if pf := physical(&d.Device); pf != &d.Device {
			last.Functions = extend(last.Functions, string(pf.Name))
			last = &last.Functions[len(last.Functions)-1]
		}
		last.Rows = append(last.Rows, row{s.Explain(d), describe(&d.Device)})
	}
	return areas
}

func extend(areas []area, title string) []area {
	if n := len(areas); n > 0 && areas[n-1].Title == title {
		return areas
	}
	return append(areas, area{Title: title})
}

// place returns the title of the area that contains a device. rank determines the order of areas: NUMA nodes, other
// hardware, links without hardware.
func place(d *discovery.Device) (rank int, title string) {
	root := ", PCIe root " + cmp.Or(d.PCIeRoot, "unknown")
	switch {
	case d.PCIAddress == "" && d.PCIeRoot == "":
		return 1 << 21, "Links without hardware"
	case d.NUMANode == discovery.None:
		return 1 << 20, "Hardware without NUMA affinity" + root
	}
	return d.NUMANode, fmt.Sprintf("NUMA node %d%s", d.NUMANode, root)
}

// describe returns the facts about a device that "netdra facts" also shows, except facts that appear elsewhere on the
// page.
func describe(d *discovery.Device) []string {
	var facts []string
	for _, column := range offers.FactsColumns() {
		value := column.Value(d)
		switch {
		case value == "" || slices.Contains([]string{"NAME", "TYPE", "NUMA", "PF", "VF"}, column.Title):
		case column.Title == "NOTES":
			facts = append(facts, value)
		default:
			facts = append(facts, column.Title+" "+value)
		}
	}
	return facts
}
