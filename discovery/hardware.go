package discovery

import (
	"fmt"
	"maps"
	"slices"
)

// Hardware provides NIC properties that are only available through netlink. Most machines do not report all of them.
type Hardware interface {
	// VFs returns the settings of the virtual functions that belong to the link with this index, ordered by function
	// index. The result is empty if the driver does not report the settings.
	VFs(link int) ([]VFSettings, error)
	// Immovable reports whether the kernel refuses to move a link to another network namespace. The link must be in the
	// last list. known is false if the kernel does not report it.
	Immovable(link int) (immovable, known bool)
	// EswitchMode returns the mode of a physical function's embedded switch: EswitchLegacy, EswitchSwitchdev, or empty.
	EswitchMode(function PCIAddress) string
	// RDMANetns returns the network namespace mode for RDMA devices: RDMAShared, RDMAExclusive, or empty.
	RDMANetns() string
	// RDMADevices returns the RDMA devices that can be used in the network namespace.
	RDMADevices() ([]RDMADevice, error)
	// RDMALinks returns the indexes of the links that underlie an RDMA device's ports and are in the same namespace.
	RDMALinks(device int) ([]int, error)
}

// maxListedVFs is the maximum number of virtual functions that a query can return. A netlink attribute is limited to 64
// KiB, and the kernel's rtnl_fill_vf writes up to 360 bytes per function (including statistics, which older kernels
// always write). If there is more data, the length wraps around, and the remaining bytes are mistaken for other link
// attributes.
const maxListedVFs = 180

// addHardware adds the properties from netlink to PCI functions. uplinks maps each function to the index of the link
// that represents it.
func addHardware(source Hardware, functions map[PCIAddress]Device, uplinks map[PCIAddress]int) []Problem {
	if source == nil {
		return nil
	}
	var problems []Problem
	settings := map[PCIAddress][]VFSettings{}
	for _, address := range slices.Sorted(maps.Keys(functions)) {
		f := functions[address]
		if !f.SRIOVCapable {
			continue
		}
		f.EswitchMode = source.EswitchMode(address)
		functions[address] = f
		uplink, here := uplinks[address]
		if f.NumVFs == 0 || !here {
			continue
		}
		var err error
		if settings[address], err = vfSettings(source, uplink, f.NumVFs); err != nil {
			problems = append(problems, Problem{Device: string(address), Message: fmt.Sprintf(
				"cannot read the settings of the virtual functions (vlan, trust...): %v", err)})
		}
	}
	for address, f := range functions {
		if siblings := settings[f.PFAddress]; f.VFIndex >= 0 && f.VFIndex < len(siblings) {
			f.Settings = &siblings[f.VFIndex]
		}
		functions[address] = f
	}
	return problems
}

// vfSettings returns the settings of a link's virtual functions, or nil if the driver does not report them. count is
// the number of virtual functions according to sysfs. The kernel's list has no indexes and omits functions for which
// the driver fails, so the list can only be used if it is complete.
func vfSettings(source Hardware, uplink, count int) ([]VFSettings, error) {
	if count > maxListedVFs {
		return nil, fmt.Errorf("there are %d, but the kernel can list at most %d", count, maxListedVFs)
	}
	list, err := source.VFs(uplink)
	if err != nil {
		return nil, err
	}
	if len(list) > 0 && len(list) != count {
		return nil, fmt.Errorf("there are %d, but the kernel lists %d", count, len(list))
	}
	return list, nil
}
