package doctor

import (
	"encoding/json"
	"io/fs"
	"maps"
	"path"
	"slices"

	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
)

// pooled reads which devices other owners have: what device plugins have registered with kubelet, which it keeps in a
// checkpoint (kubernetes, pkg/kubelet/cm/devicemanager/checkpoint), and of what they tell Multus. Those with pods are
// first. The checkpoint is no API of kubelet. A file in another form reads as empty, and the check then knows less.
func (s *Sources) pooled(input *Input) []PooledDevice {
	root := "/var/lib/kubelet"
	if input.Kubelet != nil {
		root = input.Kubelet.RootDir
	}
	found := s.checkpoint(path.Join(root, "device-plugins", "kubelet_internal_checkpoint"))
	// Kubelet keeps what a pod had until it gives a device of a plugin to another pod, which may be never.
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

// checkpoint reads kubelet's checkpoint of device plugins.
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
