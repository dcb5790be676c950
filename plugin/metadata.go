package plugin

import (
	"context"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/policy"
)

// metadataOf is what the containers of a claim find about a device in a file (KEP-5304): its attributes, and of a claim that is
// one pod's the interface, once it is attached. Containers see the file as it was when they were created.
func metadataOf(record *ClaimRecord, held *HeldDevice, steps []cnichain.StepRecord) *kubeletplugin.DeviceMetadata {
	persona := held.Persona
	if persona == nil { // an earlier driver's record
		persona = &policy.Persona{}
	}
	metadata := &kubeletplugin.DeviceMetadata{Attributes: map[string]resourceapi.DeviceAttribute{}}
	for name, value := range attributesOf(&held.Facts, persona) {
		metadata.Attributes[string(name)] = value
	}
	if !record.Shareable {
		metadata.NetworkData = networkData(steps, record.Claim.UID, held)
	}
	return metadata
}

// describe completes the files of claims that have just been attached. A container without the file has its interfaces
// nevertheless, so failures are logged only.
func (d *Driver) describe(ctx context.Context, records []ClaimRecord) {
	d.mu.Lock()
	helper := d.helper
	d.mu.Unlock()
	if helper == nil {
		return // this driver has prepared nothing yet; the files say what the earlier one knew
	}
	for i := range records {
		record := &records[i]
		if record.Shareable {
			continue
		}
		byRequest := map[string][]kubeletplugin.Device{}
		for _, device := range d.dra.devices(record) {
			byRequest[device.Requests[0]] = append(byRequest[device.Requests[0]], device)
		}
		for _, request := range sortedKeys(byRequest) {
			err := helper.UpdateRequestMetadata(ctx, record.Claim.Namespace, record.Claim.Name, types.UID(record.Claim.UID), request, byRequest[request])
			if err != nil {
				klog.FromContext(ctx).Error(err, "Cannot tell containers about their devices", "claim", record.Claim.String(), "request", request)
			}
		}
	}
}
