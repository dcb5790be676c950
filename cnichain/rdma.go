package cnichain

import (
	"fmt"
	"slices"
)

// RDMA modes of a node (see rdma-system(8)): either all network namespaces share all RDMA devices, or each device
// belongs to one namespace.
const (
	RDMAShared    = "shared"
	RDMAExclusive = "exclusive"
)

// RDMAProtocolIWARP is RDMA over TCP. Applications connect to IP addresses, which have no corresponding GIDs.
const RDMAProtocolIWARP = "iw"

// RDMADevice is an RDMA device (a verbs device such as mlx5_0) as it appears in a network namespace.
type RDMADevice struct {
	// Index is the kernel's index, which does not change when the device is moved or renamed. If all RDMA modules,
	// including ib_core, are reloaded, a different device may get the same index.
	Index uint32 `json:"index"`
	Name  string `json:"name"`
	// Ports is the number of ports on the device.
	Ports uint32 `json:"ports,omitempty"`
	// Links contains the indexes of the links on the device's ports. It only includes links in the same namespace.
	Links []int `json:"-"`
	// LinksUnknown is true if the kernel driver did not report the link of every port.
	LinksUnknown bool `json:"-"`
	// Protocol is the protocol of the first port in the kernel's notation: ib, roce, iw, opa or usnic. It is empty if
	// the protocol is unknown.
	Protocol string `json:"-"`
	// PCIAddress is the hardware's PCI address, which is visible only in the host's namespace.
	PCIAddress string `json:"pciAddress,omitempty"`
}

// RDMADevicesOf returns the RDMA devices on the host that belong to a device: those on its PCI function, and those with
// a port on its link. A VLAN that has no RDMA device of its own uses its lower device's RDMA device, whose GIDs include
// the VLAN's addresses.
func RDMADevicesOf(device *Device, host []RDMADevice) []RDMADevice {
	var direct, below []RDMADevice
	for _, rdma := range host {
		switch {
		case device.PCIAddress != "" && rdma.PCIAddress == device.PCIAddress,
			device.Index != 0 && slices.Contains(rdma.Links, device.Index):
			direct = append(direct, rdma)
		case device.Kind == KindVLAN && device.Parent != 0 && slices.Contains(rdma.Links, device.Parent):
			below = append(below, rdma)
		}
	}
	if len(direct) > 0 {
		return direct
	}
	return below
}

// Same reports whether an RDMA device that is now on the host is the one recorded in seen, which was provided to a pod.
// The index alone does not identify an RDMA device; see [RDMADevice].
func (d *RDMADevice) Same(seen *RDMADevice) bool {
	if d.PCIAddress != "" {
		return d.Index == seen.Index && d.PCIAddress == seen.PCIAddress
	}
	return d.Index == seen.Index && d.Name == seen.Name
}

// CheckRDMA returns an error if the RDMA devices of a step's device cannot be provided to a pod. It returns nil for a
// step that does not provide RDMA devices. mode is the node's RDMA mode.
func (s *PlanStep) CheckRDMA(devices []RDMADevice, mode string) error {
	if s.RDMA == nil || s.Device == nil {
		return nil
	}
	device := s.Device
	if len(devices) == 0 {
		return fmt.Errorf("cannot provide RDMA devices of device %s: it has none; load the RDMA module of its kernel "+
			"driver on the node (such as mlx5_ib or irdma), or remove rdma from the step", device.Name)
	}
	if mode != RDMAExclusive {
		return nil
	}
	if !device.Exclusive || s.Stays && device.IfName != "" {
		return fmt.Errorf("cannot provide RDMA devices of device %s: on this node each RDMA device belongs to one "+
			"network namespace, and the interface stays on the host; use a plugin that moves it, or set \"rdma system "+
			"set netns shared\" on the node", device.Name)
	}
	for _, rdma := range devices {
		if rdma.LinksUnknown {
			return fmt.Errorf("cannot provide RDMA device %s of device %s: its kernel driver does not report the "+
				"links of its ports, and moving it could affect other links; see the kernel log (dmesg) of the node, "+
				"and consider resetting the NIC", rdma.Name, device.Name)
		}
		if len(rdma.Links) > 1 || len(rdma.Links) == 1 && rdma.Links[0] != device.Index {
			return fmt.Errorf("cannot provide RDMA device %s of device %s: other links of the node use it, too, and "+
				"it would leave the host; set \"rdma system set netns shared\" on the node", rdma.Name, device.Name)
		}
	}
	return nil
}
