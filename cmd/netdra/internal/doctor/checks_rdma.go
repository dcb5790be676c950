package doctor

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/discovery"
)

// RDMAPart is the RDMA function of a NIC: a device on the kernel's auxiliary bus that the network driver creates for
// the RDMA driver.
type RDMAPart struct {
	// Alias is the module alias to pass to modprobe to load the RDMA driver, for example auxiliary:mlx5_core.rdma.
	Alias string
	// Function is the PCI address of the NIC.
	Function string
	// Driven reports whether a driver is bound to the part.
	Driven bool
}

const auxiliaryDevices = "/sys/bus/auxiliary/devices"

// rdmaParts finds the parts by name. A name consists of the module, the part, and a number
// (Documentation/driver-api/auxiliary_bus.rst in the kernel): mlx5_core.rdma.0, bnxt_en.rdma.0, ice.roce.0,
// i40e.iwarp.0. In sysfs, the part's directory is below the NIC's directory, so the symlink to the part contains the
// NIC's PCI address.
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
			continue // it has been removed in the meantime
		}
		_, err = fs.ReadLink(s.Root, relative(path.Join(auxiliaryDevices, name, "driver")))
		parts = append(parts, RDMAPart{Alias: "auxiliary:" + id, Function: path.Base(path.Dir(target)),
			Driven: err == nil})
	}
	return parts
}

func cutLast(text, separator string) (before, after string, found bool) {
	i := strings.LastIndex(text, separator)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(separator):], true
}

// checkRDMA reports the namespace mode of RDMA devices, and finds published NICs whose RDMA driver is not loaded.
func checkRDMA(input *Input) []Finding {
	mode, idle := "", map[string][]string{}
	for i := range input.Driver.Published {
		mode = cmp.Or(mode, input.Driver.Published[i].Device.RDMANetns)
	}
	for _, part := range input.RDMAParts {
		for i := range input.Driver.Published {
			device := &input.Driver.Published[i].Device
			name := string(device.Name)
			if !part.Driven && string(device.PCIAddress) == part.Function && !slices.Contains(idle[part.Alias], name) {
				idle[part.Alias] = append(idle[part.Alias], name)
			}
		}
	}
	var found []Finding
	for _, alias := range sortedKeys(idle) {
		slices.Sort(idle[alias])
		found = append(found, Finding{
			Level: Warn, What: "no RDMA driver is loaded for " + strings.Join(idle[alias], ", "), Where: auxiliaryDevices,
			Why: "the NICs support RDMA but have no RDMA devices: policies read rdma == false, and claims that " +
				"request RDMA do not get them",
			Do: fmt.Sprintf("modprobe %s, and add the loaded module to /etc/modules-load.d; ignore this if RDMA is "+
				"not used", alias),
		})
	}
	switch {
	case len(found) > 0 || mode == "":
		return found
	case mode == discovery.RDMAExclusive:
		return []Finding{{Level: OK, What: "each RDMA device belongs to one network namespace, and can be moved to a pod"}}
	}
	return []Finding{{Level: OK, What: "RDMA devices are shared by all network namespaces, and cannot be moved to a pod"}}
}
