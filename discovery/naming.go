package discovery

import (
	"cmp"
	"slices"
)

// Named returns the facts with PCI functions renamed: physical functions and NICs get the given names, and virtual
// functions are named after their physical function. It is used to preserve device names when interfaces are renamed.
// Names for functions that are not in the facts are ignored. The receiver is not modified.
func (f Facts) Named(names map[PCIAddress]IfName) Facts {
	devices := make(map[string]Device, len(f.Devices))
	renamed := map[PCIAddress]IfName{}
	for _, d := range f.Devices {
		if name, ok := names[d.PCIAddress]; ok && d.PFAddress == "" && name != d.Name {
			d.Name = name
			renamed[d.PCIAddress] = name
		}
		if name := names[d.PFAddress]; name != "" && d.AuxiliaryDevice != "" && d.PFName == "" {
			// Its physical function is currently not on the host, for example because it is in a pod.
			d = d.withPF(name)
			renamed[d.PFAddress] = name
		}
		devices[d.identity()] = d
	}
	if len(renamed) == 0 {
		return f
	}
	for id, d := range devices {
		if name, ok := renamed[d.PFAddress]; ok {
			devices[id] = d.withPF(name)
		}
	}
	named := Facts{Orphans: f.Orphans, Problems: slices.Clone(f.Problems)}
	kept := map[string]bool{}
	for id, d := range devices {
		_, kept[id] = names[cmp.Or(d.PFAddress, d.PCIAddress)]
	}
	named.add(devices, kept)
	return named
}
