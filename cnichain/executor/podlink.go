package executor

import "github.com/dra-networking/dra-network-driver/cnichain"

// couldBe reports whether a link is of the device's kind: an application can't make hardware.
func couldBe(link *cnichain.Link, device *cnichain.Device) bool {
	return device.Kind == "" || link.Kind == device.Kind
}

// isMoved reports whether a link that a plugin has moved into a pod is a virtual device: an application can make
// another link of its name.
func isMoved(link *cnichain.Link, device *cnichain.Device) bool {
	return device.PCIAddress == "" && device.Index != 0 &&
		link.Kind == device.Kind && link.Parent == device.Parent && sameVLAN(link, device)
}

// isDevice reports whether a link in a pod is a device of the host, whatever it is called: a move keeps its address.
// VLANs of one card share that, and a pod may have several.
func isDevice(link *cnichain.Link, device *cnichain.Device) bool {
	return device.HasUniqueMAC() && link.MAC == device.MAC && couldBe(link, device) && sameVLAN(link, device)
}

// sameVLAN is true where the device is no VLAN, or a baseline of an earlier driver does not say which.
func sameVLAN(link *cnichain.Link, device *cnichain.Device) bool {
	return device.VLANID == 0 && device.VLANProtocol == "" ||
		link.VLANID == device.VLANID && link.VLANProtocol == device.VLANProtocol && link.Parent == device.Parent
}
