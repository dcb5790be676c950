package discovery

import (
	"fmt"
	"maps"
	"slices"
)

// Hardware says what only netlink knows of network cards. Most machines cannot say all of it.
type Hardware interface {
	// VFs returns what is set for the virtual functions of the link with the index, in the order of their own indexes.
	// Empty if the driver does not say.
	VFs(link int) ([]VFSettings, error)
	// EswitchMode returns the mode of the switch in a physical function: EswitchLegacy, EswitchSwitchdev, or empty.
	EswitchMode(function PCIAddress) string
	// RDMANetns returns whose RDMA devices are: RDMAShared, RDMAExclusive, or empty.
	RDMANetns() string
	// RDMADevices returns the RDMA devices that the network namespace can use.
	RDMADevices() ([]RDMADevice, error)
	// RDMALinks returns the indexes of the links, of the same namespace, that the ports of an RDMA device stand on.
	RDMALinks(device int) ([]int, error)
}

// maxListedVFs is the greatest number of virtual functions that is asked for. An attribute of netlink has at most 64
// KiB, the kernel's rtnl_fill_vf writes up to 360 bytes for each function (with statistics, which older kernels always
// write), and what does not fit wraps around and looks like other attributes of the link.
const maxListedVFs = 180

// addHardware adds what netlink knows of PCI functions. Uplinks are the indexes of the links that stand for them.
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
				"cannot know what is set for the virtual functions (vlan, trust...): %v", err)})
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

// vfSettings returns what is set for the virtual functions of a link, of which sysfs says that there are count; nothing
// if the driver does not say. The kernel's list has no numbers and leaves out functions that the driver fails for.
func vfSettings(source Hardware, uplink, count int) ([]VFSettings, error) {
	if count > maxListedVFs {
		return nil, fmt.Errorf("there are %d, and the kernel can list no more than %d", count, maxListedVFs)
	}
	list, err := source.VFs(uplink)
	if err != nil {
		return nil, err
	}
	if len(list) > 0 && len(list) != count {
		return nil, fmt.Errorf("there are %d, and the kernel lists %d", count, len(list))
	}
	return list, nil
}
