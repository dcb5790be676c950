package nodepage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/discovery"
)

// machineOf draws the machine: NUMA nodes with their PCIe roots, the devices below each root with their virtual
// functions, and finally links without hardware. A virtual function whose physical function is not on the node, as in a
// virtual machine, gets its own box.
func machineOf(node *Node, rows []Row) []Area {
	devices := map[string]*discovery.Device{}
	for i := range node.Decision.Devices {
		devices[string(node.Decision.Devices[i].Device.Name)] = &node.Decision.Devices[i].Device
	}
	functions := functionsOf(devices, rows)
	var areas []Area
	byPlace := map[place][]Box{}
	for i := range rows {
		first := devices[rows[i].Members[0].Name]
		if first.PFName != "" && devices[string(first.PFName)] != nil {
			continue // drawn in the box of its physical function
		}
		byPlace[placeOf(first)] = append(byPlace[placeOf(first)], boxOf(&rows[i], functions[first.Name]))
	}
	places := make([]place, 0, len(byPlace))
	for p := range byPlace {
		places = append(places, p)
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.area, b.area), cmp.Compare(a.root, b.root))
	})
	for _, p := range places {
		if n := len(areas); n == 0 || areas[n-1].Title != p.area {
			areas = append(areas, Area{Title: p.area})
		}
		last := &areas[len(areas)-1]
		last.Roots = append(last.Roots, Root{Title: p.root, Boxes: byPlace[p]})
	}
	return areas
}

// place is the position of a box in the drawing.
type place struct {
	rank       int
	area, root string
}

// placeOf returns the position of a device. The rank puts NUMA nodes first, by number, then hardware without NUMA
// affinity, then links without hardware.
func placeOf(d *discovery.Device) place {
	switch {
	case d.PCIAddress == "" && d.PCIeRoot == "":
		return softwarePlace(d)
	case d.NUMANode == discovery.None:
		return place{rank: 1 << 20, area: "Hardware without NUMA affinity", root: "PCIe root " +
			cmp.Or(d.PCIeRoot, "unknown")}
	}
	return place{rank: d.NUMANode, area: fmt.Sprintf("NUMA node %d", d.NUMANode), root: "PCIe root " +
		cmp.Or(d.PCIeRoot, "unknown")}
}

// softwarePlace is placeOf for links without hardware, by kind.
func softwarePlace(d *discovery.Device) place {
	kinds := map[string]string{discovery.TypeBridge: "Bridges", discovery.TypeBond: "Bonds",
		discovery.TypeOVSDatapath: "Open vSwitch", discovery.TypeOVSInternal: "Open vSwitch",
		discovery.TypeVLAN: "VLANs"}
	kind, known := kinds[d.Type]
	if !known {
		kind = "Others"
	}
	return place{rank: 1 << 21, area: "Links without hardware", root: kind}
}

// functionsOf returns the virtual functions of each physical function, by index.
func functionsOf(devices map[string]*discovery.Device, rows []Row) map[discovery.IfName][]Cell {
	index := map[string]int{}
	functions := map[discovery.IfName][]Cell{}
	for i := range rows {
		for _, member := range rows[i].Members {
			if d := devices[member.Name]; d.PFName != "" {
				index[member.Name] = d.VFIndex
				functions[d.PFName] = append(functions[d.PFName], Cell{Name: member.Name, State: rows[i].State})
			}
		}
	}
	for _, cells := range functions {
		slices.SortFunc(cells, func(a, b Cell) int { return cmp.Compare(index[a.Name], index[b.Name]) })
	}
	return functions
}

// boxOf returns the box for a device. If the row contains several devices, the box only shows the text that they share;
// the table contains their addresses.
func boxOf(row *Row, functions []Cell) Box {
	box := Box{ID: row.ID, Label: row.Label, Type: row.Type, State: row.State, Functions: functions}
	if len(row.Members) == 1 {
		if only := row.Members[0]; only.Address != "" {
			box.Lines = append(box.Lines, only.Address)
		}
		if only := row.Members[0]; only.Also != "" {
			box.Lines = append(box.Lines, "also "+only.Also)
		}
		if only := row.Members[0]; only.RDMA != "" {
			box.Lines = append(box.Lines, "RDMA device "+only.RDMA)
		}
	}
	if len(row.What) > 0 {
		box.Lines = append(box.Lines, strings.Join(row.What, " · "))
	}
	if len(functions) > 0 {
		counts := map[State]int{}
		for _, cell := range functions {
			counts[cell.State]++
		}
		box.Summary = fmt.Sprintf("%d virtual %s: %s", len(functions), pluralize(len(functions), "function"),
			tally(counts, states()))
	}
	return box
}
