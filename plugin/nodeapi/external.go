package nodeapi

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

// ExternalKind returns the vendor and class of the CDI devices of a claim whose devices another component attaches.
func ExternalKind(claimUID string) string { return driverName + "/external-" + claimUID }

// IsDeviceID reports whether an ID can be the name of a CDI device (CDI specification, "CDI JSON specification").
func IsDeviceID(id string) bool {
	valid, err := regexp.MatchString(`^[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?$`, id)
	return valid && err == nil
}

// EncodeExternal returns the CDI spec of a claim whose devices another component attaches. The names of its CDI devices
// are the IDs of the devices, which the kubelet reports to clients that query the resources of a pod. The spec only
// sets an environment variable in containers, because a CDI device must edit something.
func EncodeExternal(claimUID, claim string, deviceIDs []string, env string) ([]byte, error) {
	spec := specs.Spec{Version: cdiVersion, Kind: ExternalKind(claimUID),
		Annotations: map[string]string{claimAnnotation: claim}}
	for _, id := range deviceIDs {
		spec.Devices = append(spec.Devices, specs.Device{Name: id,
			ContainerEdits: specs.ContainerEdits{Env: []string{env}}})
	}
	return json.Marshal(&spec)
}

// DeviceInfo is the information for plugins of a NetworkAttachmentDefinition about an allocated device: a file of the
// device information specification of the Network Plumbing Working Group.
type DeviceInfo struct {
	Type    string         `json:"type"`
	Version string         `json:"version"`
	PCI     *PCIDeviceInfo `json:"pci,omitempty"`
	// WrittenBy distinguishes the driver's files from those of device plugins. Readers ignore unknown fields.
	WrittenBy string `json:"dra.networking/writtenBy,omitempty"`
}

// PCIDeviceInfo is the part of the specification for a PCI function.
type PCIDeviceInfo struct {
	Address   string `json:"pci-address"`
	PFAddress string `json:"pf-pci-address,omitempty"`
	// RDMADevice are the names of RDMA devices, separated by commas.
	RDMADevice string `json:"rdma-device,omitempty"`
}

// NewDeviceInfo returns the driver's description of a PCI function.
func NewDeviceInfo(pci PCIDeviceInfo) DeviceInfo {
	return DeviceInfo{Type: "pci", Version: "1.1.0", PCI: &pci, WrittenBy: driverName}
}

// IsWrittenByDriver reports whether the driver wrote a file of device information.
func IsWrittenByDriver(data []byte) bool {
	var info DeviceInfo
	return json.Unmarshal(data, &info) == nil && info.WrittenBy == driverName
}

// DeviceInfoName returns the file name by which Multus finds the information about a device of a resource.
func DeviceInfoName(resource, deviceID string) string {
	plain := strings.NewReplacer("/", "-")
	return plain.Replace(resource) + "-" + plain.Replace(deviceID) + deviceInfoSuffix
}

// IsDeviceInfo reports whether a file name belongs to device information.
func IsDeviceInfo(name string) bool { return strings.HasSuffix(filepath.Base(name), deviceInfoSuffix) }

const deviceInfoSuffix = "-device.json"
