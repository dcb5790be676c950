package doctor

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/discovery"
)

// RDMAPart is the part of a NIC that its RDMA driver drives: a device on the kernel's auxiliary bus, created by the
// network driver.
type RDMAPart struct {
	// Alias is by what modprobe finds the RDMA driver, for example auxiliary:mlx5_core.rdma.
	Alias string
	// Function is the PCI address of the NIC.
	Function string
	// Driven reports whether a driver has it.
	Driven bool
}

const auxiliaryDevices = "/sys/bus/auxiliary/devices"

// rdmaParts finds the parts by their names, which consist of the module, the part, and a number (the kernel's
// Documentation/driver-api/auxiliary_bus.rst): mlx5_core.rdma.0, bnxt_en.rdma.0, ice.roce.0, i40e.iwarp.0. The
// directory of the part in sysfs is below the NIC's, so the link contains the function.
func (s *Sources) rdmaParts() []RDMAPart {
	var parts []RDMAPart
	for _, name := range s.names(auxiliaryDevices) {
		id, _, numbered := cutLast(name, ".")
		_, part, named := cutLast(id, ".")
		if !numbered || !named || !slices.Contains([]string{"rdma", "roce", "iwarp"}, part) {
			continue
		}
		target, err := fs.ReadLink(s.Root, relative(path.Join(auxiliaryDevices, name)))
		if err != nil {
			continue // it has gone since
		}
		_, err = fs.ReadLink(s.Root, relative(path.Join(auxiliaryDevices, name, "driver")))
		parts = append(parts, RDMAPart{Alias: "auxiliary:" + id, Function: path.Base(path.Dir(target)),
			Driven: err == nil})
	}
	return parts
}

// cutLast cuts a text at the last separator.
func cutLast(text, separator string) (before, after string, found bool) {
	i := strings.LastIndex(text, separator)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(separator):], true
}

// checkRDMA reports the namespace mode of RDMA devices, and finds published devices whose NIC could have some. Without
// a driver of the RDMA part, the NIC is published with rdma == false, which is correct but surprising.
func checkRDMA(input *Input) []Finding {
	names := map[string]string{} // of published functions, by address
	mode := ""
	for i := range input.Driver.Published {
		device := &input.Driver.Published[i].Device
		if device.PCIAddress != "" {
			names[string(device.PCIAddress)] = string(device.Name)
		}
		if device.RDMANetns != "" {
			mode = device.RDMANetns
		}
	}
	idle := map[string][]string{}
	for _, part := range input.RDMAParts {
		if name := names[part.Function]; name != "" && !part.Driven {
			idle[part.Alias] = append(idle[part.Alias], name)
		}
	}
	var found []Finding
	for _, alias := range slices.Sorted(maps.Keys(idle)) {
		found = append(found, Finding{
			Level: Warn, What: "no driver has the RDMA part of " + someOf(idle[alias]), Where: auxiliaryDevices,
			Why: "the cards could do RDMA, but have no RDMA devices: policies see rdma == false, and claims that " +
				"ask for RDMA do not get them",
			Do: fmt.Sprintf("modprobe %s, and name the module that it loads in /etc/modules-load.d; if nobody is "+
				"to use RDMA, leave it so", alias),
		})
	}
	if len(found) == 0 && mode != "" {
		found = append(found, Finding{Level: OK, What: describeRDMAMode(mode)})
	}
	return found
}

func describeRDMAMode(mode string) string {
	if mode == discovery.RDMAExclusive {
		return "each RDMA device belongs to one network namespace, and can be moved to that of a pod"
	}
	return "RDMA devices are shared by all network namespaces, and cannot be moved to that of a pod"
}

// someOf names the first of many names.
func someOf(names []string) string {
	const most = 3
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
