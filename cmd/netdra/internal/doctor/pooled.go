package doctor

import (
	"encoding/json"
	"io/fs"
	"maps"
	"path"
	"slices"

	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
)

// pooled returns devices with other owners: devices that device plugins have registered with the kubelet, which stores
// them in a checkpoint (kubernetes, pkg/kubelet/cm/devicemanager/checkpoint), and devices with a device information
// file for Multus. Devices that are allocated to pods come first. The checkpoint is not an API of the kubelet. A file
// in another format counts as empty, so the check may miss devices.
func (s *Sources) pooled(input *Input) []PooledDevice {
	root := "/var/lib/kubelet"
	if input.Kubelet != nil {
		root = input.Kubelet.RootDir
	}
	found := s.checkpoint(path.Join(root, "device-plugins", "kubelet_internal_checkpoint"))
	// The kubelet keeps the devices of a terminated pod until it assigns a device from that plugin to another pod,
	// which may never happen.
	if pods := s.names(path.Join(root, "pods")); pods != nil {
		found = slices.DeleteFunc(found, func(d PooledDevice) bool {
			return d.Pod != "" && !slices.Contains(pods, d.Pod)
		})
	}
	for _, name := range s.names(input.Settings.DeviceInfoDir) {
		file := path.Join(input.Settings.DeviceInfoDir, name)
		data, err := fs.ReadFile(s.Root, relative(plainPath(file)))
		var info nodeapi.DeviceInfo
		if err != nil || !nodeapi.IsDeviceInfo(name) || nodeapi.IsWrittenByDriver(data) ||
			json.Unmarshal(data, &info) != nil || info.PCI == nil {
			continue
		}
		found = append(found, PooledDevice{ID: info.PCI.Address, Resource: file})
	}
	return found
}

// checkpoint reads the kubelet's checkpoint of device plugins.
func (s *Sources) checkpoint(file string) []PooledDevice {
	data, err := fs.ReadFile(s.Root, relative(plainPath(file)))
	var checkpoint struct {
		Data struct {
			PodDeviceEntries []struct {
				PodUID       string
				ResourceName string
				DeviceIDs    map[string][]string // by NUMA node
			}
			RegisteredDevices map[string][]string // by resource
		}
	}
	if err != nil || json.Unmarshal(data, &checkpoint) != nil {
		return nil
	}
	var found []PooledDevice
	for _, entry := range checkpoint.Data.PodDeviceEntries {
		for _, node := range slices.Sorted(maps.Keys(entry.DeviceIDs)) {
			for _, id := range entry.DeviceIDs[node] {
				found = append(found, PooledDevice{ID: id, Resource: "resource " + entry.ResourceName,
					Pod: entry.PodUID})
			}
		}
	}
	for _, resource := range slices.Sorted(maps.Keys(checkpoint.Data.RegisteredDevices)) {
		for _, id := range checkpoint.Data.RegisteredDevices[resource] {
			found = append(found, PooledDevice{ID: id, Resource: "resource " + resource})
		}
	}
	return found
}
