package attach

import (
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

// maxAddresses is the API's limit for networkData.ips.
const maxAddresses = 16

// stepsOf returns, in order, the indexes of a device's steps: the step that attaches the device and all steps that
// depend on it directly or indirectly.
//
// One pass is sufficient, since every step in a plan comes after all of its dependencies. A step can belong to several
// devices: a bond of two devices depends on both, so it is a step of each.
func stepsOf(steps []executor.StepRecord, claimUID string, held *claims.HeldDevice) []int {
	var found []int
	for i := range steps {
		device := steps[i].Step.Device
		mine := device != nil && steps[i].Claim.UID == claimUID && device.Pool == held.Pool &&
			device.Name == held.Name && device.ShareID == held.ShareID
		for _, parent := range steps[i].Step.DependsOn {
			mine = mine || slices.Contains(found, parent)
		}
		if mine {
			found = append(found, i)
		}
	}
	return found
}

// stepsOfPart returns, in order, the indexes of the steps for a part's devices. For the whole claim, it returns all
// steps of the claim.
func stepsOfPart(record *claims.Record, steps []executor.StepRecord, part Part) []int {
	var found []int
	for i := range steps {
		if part.Request == "" && steps[i].Claim.UID == part.ClaimUID {
			found = append(found, i)
		}
	}
	for i := range record.Devices {
		held := &record.Devices[i]
		if part.Request != "" && resourceclaim.BaseRequestRef(held.Request) == part.Request {
			found = append(found, stepsOf(steps, part.ClaimUID, held)...)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// MissingOf returns the first of a device's interfaces that has vanished from the pod, or "" if none has. missing maps
// step indexes to missing interfaces.
func MissingOf(steps []executor.StepRecord, missing map[int]string, claimUID string, held *claims.HeldDevice) string {
	if len(missing) == 0 {
		return ""
	}
	for _, i := range stepsOf(steps, claimUID, held) {
		if name := missing[i]; name != "" {
			return name
		}
	}
	return ""
}

// NetworkData returns a description of the device's final interface, that is, the interface of the last step that
// depends on the device.
//
// This is the interface that applications use: if a VF has a VLAN on top, the addresses are assigned to the VLAN
// interface.
func NetworkData(steps []executor.StepRecord, claimUID string, held *claims.HeldDevice) *resourceapi.NetworkDeviceData {
	final := finalStep(steps, claimUID, held)
	if final == nil {
		return nil
	}
	data := &resourceapi.NetworkDeviceData{InterfaceName: final.IfName}
	if final.Step.WithoutInterface() {
		data.InterfaceName = "" // the device is exposed through device nodes and has no interface
	}
	if index := interfaceIndex(final.Merged, final.IfName); index >= 0 {
		data.HardwareAddress = final.Merged.Interfaces[index].Mac
	}
	for _, ip := range addressesOf(final) {
		address := ip.Address.String()
		if len(data.IPs) < maxAddresses && !slices.Contains(data.IPs, address) {
			data.IPs = append(data.IPs, address) // the API requires unique addresses
		}
	}
	return data
}

// finalStep returns the last step that depends on the device, or nil if there is none or it has no result.
func finalStep(steps []executor.StepRecord, claimUID string, held *claims.HeldDevice) *executor.StepRecord {
	mine := stepsOf(steps, claimUID, held)
	if len(mine) == 0 || steps[mine[len(mine)-1]].Merged == nil {
		return nil
	}
	return &steps[mine[len(mine)-1]]
}

// addressesOf returns the addresses of a step's interface. The step must have a result.
func addressesOf(step *executor.StepRecord) []*types100.IPConfig {
	index := interfaceIndex(step.Merged, step.IfName)
	var addresses []*types100.IPConfig
	for _, ip := range step.Merged.IPs {
		if ip.Interface == nil || *ip.Interface == index {
			addresses = append(addresses, ip)
		}
	}
	return addresses
}

func interfaceIndex(result *types100.Result, name string) int {
	for i, link := range result.Interfaces {
		if link.Name == name && link.Sandbox != "" {
			return i
		}
	}
	return -1
}
