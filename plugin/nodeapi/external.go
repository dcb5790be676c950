package nodeapi

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

// ExternalKind returns the CDI vendor and class for the devices of a claim that another component attaches.
func ExternalKind(claimUID string) string { return driverName + "/external-" + claimUID }

// IsDeviceID reports whether an ID is valid as the name of a CDI device (CDI specification, "CDI JSON specification").
func IsDeviceID(id string) bool {
	valid, err := regexp.MatchString(`^[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?$`, id)
	return valid && err == nil
}

// EncodeExternal returns the CDI spec for a claim whose devices another component attaches. The names of the spec's CDI
// devices are the device IDs, which the kubelet reports to clients that query a pod's resources. The spec only sets an
// environment variable in containers, because a CDI device must make at least one edit.
func EncodeExternal(claimUID, claim string, deviceIDs []string, env string) ([]byte, error) {
	spec := specs.Spec{Version: cdiVersion, Kind: ExternalKind(claimUID),
		Annotations: map[string]string{claimAnnotation: claim}}
	for _, id := range deviceIDs {
		spec.Devices = append(spec.Devices, specs.Device{Name: id,
			ContainerEdits: specs.ContainerEdits{Env: []string{env}}})
	}
	return json.Marshal(&spec)
}

// DeviceInfo describes an allocated device to the plugins in a NetworkAttachmentDefinition. Its JSON encoding is the
// file format defined in the device information specification by the Network Plumbing Working Group.
type DeviceInfo struct {
	Type    string         `json:"type"`
	Version string         `json:"version"`
	PCI     *PCIDeviceInfo `json:"pci,omitempty"`
	// WrittenBy distinguishes files written by the driver from those written by device plugins. Readers ignore unknown
	// fields.
	WrittenBy string `json:"dra.networking/writtenBy,omitempty"`
}

// PCIDeviceInfo is the part of the device information that describes a PCI function.
type PCIDeviceInfo struct {
	Address   string `json:"pci-address"`
	PFAddress string `json:"pf-pci-address,omitempty"`
	// RDMADevice is a comma-separated list of the names of the RDMA devices.
	RDMADevice string `json:"rdma-device,omitempty"`
}

// NewDeviceInfo returns the driver's description of a PCI function.
func NewDeviceInfo(pci PCIDeviceInfo) DeviceInfo {
	return DeviceInfo{Type: "pci", Version: "1.1.0", PCI: &pci, WrittenBy: driverName}
}

// IsWrittenByDriver reports whether a device information file was written by the driver.
func IsWrittenByDriver(data []byte) bool {
	var info DeviceInfo
	return json.Unmarshal(data, &info) == nil && info.WrittenBy == driverName
}

// DeviceInfoName returns the file name under which Multus looks up the information about a device that belongs to a
// resource.
func DeviceInfoName(resource, deviceID string) string {
	plain := strings.NewReplacer("/", "-")
	return plain.Replace(resource) + "-" + plain.Replace(deviceID) + deviceInfoSuffix
}

// IsDeviceInfo reports whether name is the name of a device information file.
func IsDeviceInfo(name string) bool { return strings.HasSuffix(filepath.Base(name), deviceInfoSuffix) }

const deviceInfoSuffix = "-device.json"
