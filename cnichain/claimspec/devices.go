package claimspec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// Device is an allocated device that the driver attaches.
type Device struct {
	resourceapi.DeviceRequestAllocationResult
	// Class contains the parameters of the request's DeviceClass: the topology, and the step that attaches the device.
	Class v1alpha1.Parameters
	// Parameters are the claim's parameters for the interfaces created from the device.
	Parameters []v1alpha1.ClaimParameters
}

// Devices returns the devices in a claim's allocation that the driver attaches, in request order. It omits other
// drivers' devices, devices with administrative access, and link bandwidth. If Devices returns an error, the driver
// attaches none of the devices.
func Devices(claim *resourceapi.ResourceClaim) ([]Device, error) {
	var devices []Device
	for _, result := range results(claim) {
		if isBandwidth(claim, result.Request) {
			continue
		}
		device, err := deviceFor(claim, result)
		if err != nil {
			return nil, err
		}
		devices = append(devices, device)
	}
	return devices, checkOneInterfaceEach(devices)
}

// Bandwidths returns the devices in a claim's allocation that provide only bandwidth to the claim, in request order.
// The DeviceClasses for these requests have BandwidthParameters.
func Bandwidths(claim *resourceapi.ResourceClaim) []resourceapi.DeviceRequestAllocationResult {
	return slices.DeleteFunc(results(claim),
		func(r resourceapi.DeviceRequestAllocationResult) bool { return !isBandwidth(claim, r.Request) })
}

// results returns this driver's devices in a claim's allocation, except those with administrative access.
func results(claim *resourceapi.ResourceClaim) []resourceapi.DeviceRequestAllocationResult {
	if claim.Status.Allocation == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(claim.Status.Allocation.Devices.Results),
		func(r resourceapi.DeviceRequestAllocationResult) bool {
			return r.Driver != v1alpha1.DriverName || ptr.Deref(r.AdminAccess, false)
		})
}

// isBandwidth reports whether a request's class is for link bandwidth.
func isBandwidth(claim *resourceapi.ResourceClaim, request string) bool {
	return slices.ContainsFunc(opaqueParameters(claim, request, resourceapi.AllocationConfigSourceClass),
		v1alpha1.IsBandwidthParameters)
}

// CheckClasses rejects an allocation from a class other than the requested one. It can check only classes that were
// generated for topologies in the cluster, since each of these is for one step of one topology. The check is necessary
// because the Kubernetes 1.37 scheduler can swap the devices of two claims of a pod in a PodGroup. The pod would then
// be attached to a network that it did not request.
func CheckClasses(
	claim *resourceapi.ResourceClaim, devices []Device, topologies []*v1alpha1.NetworkTopology,
) error {
	for i := range devices {
		class, _ := requested(claim, devices[i].Request)
		for _, topology := range topologies {
			if !slices.Contains(topology.Status.DeviceClasses, class) ||
				class == v1alpha1.ClassName(devices[i].Class.NetworkTopologyRef.Name, devices[i].Class.Step) {
				continue
			}
			return fmt.Errorf("request %s is for DeviceClass %s of NetworkTopology %s, but the scheduler has "+
				"allocated a "+
				"device for step %s of NetworkTopology %s; delete the pod and the claim, and list claims of a "+
				"PodGroup after all others in the pod", devices[i].Request, class, topology.Name, devices[i].Class.Step,
				devices[i].Class.NetworkTopologyRef.Name)
		}
	}
	return nil
}

// requested returns the class and the allocation mode of a request, or of its chosen alternative. Both results are
// empty if there is no such request.
func requested(
	claim *resourceapi.ResourceClaim, name string,
) (class string, mode resourceapi.DeviceAllocationMode) {
	for _, request := range claim.Spec.Devices.Requests {
		if request.Exactly != nil && request.Name == name {
			return request.Exactly.DeviceClassName, request.Exactly.AllocationMode
		}
		for _, alternative := range request.FirstAvailable {
			if resourceclaim.CreateSubRequestRef(request.Name, alternative.Name) == name {
				return alternative.DeviceClassName, alternative.AllocationMode
			}
		}
	}
	return "", ""
}

// deviceFor combines an allocation result with the claim's and the class's parameters for the request. An error is
// always caused by the claim or the class, so allocating another device would not help.
func deviceFor(
	claim *resourceapi.ResourceClaim, result resourceapi.DeviceRequestAllocationResult,
) (Device, error) {
	device := Device{DeviceRequestAllocationResult: result}
	if _, mode := requested(claim, result.Request); mode == resourceapi.DeviceAllocationModeAll {
		return device, allRefused(result.Request)
	}
	var err error
	asked := opaqueParameters(claim, result.Request, resourceapi.AllocationConfigSourceClaim)
	if device.Parameters, err = decodeAll(claim, result.Request, asked); err != nil {
		return device, err
	}
	device.Class, err = classParameters(claim, result.Request)
	return device, err
}

// allRefused returns the error for a request that asks for all devices.
func allRefused(request string) error {
	return fmt.Errorf("cannot serve request %q: its allocationMode is All, and the number of interfaces of a pod "+
		"must not depend on the node; set allocationMode to ExactCount, with a count", request)
}

// checkOneInterfaceEach rejects claim parameters that would apply to several interfaces.
func checkOneInterfaceEach(devices []Device) error {
	for i := range devices {
		for j := range devices[:i] {
			if devices[i].Request == devices[j].Request && len(devices[i].Parameters) > 0 {
				return fmt.Errorf("request %s has several devices and configuration for %s, "+
					"which would apply to all of them; use a separate request for each device",
					devices[i].Request, v1alpha1.DriverName)
			}
		}
	}
	return nil
}

// classParameters returns the parameters of a request's class. Only a class may choose the topology: claims are written
// by namespace users, who must not choose which plugins run on the host.
func classParameters(claim *resourceapi.ResourceClaim, request string) (v1alpha1.Parameters, error) {
	found := v1alpha1.Parameters{}
	for _, raw := range opaqueParameters(claim, request, resourceapi.AllocationConfigSourceClass) {
		if found.Step != "" {
			return found, fmt.Errorf("request %s has several configurations for %s in its DeviceClass; keep one",
				request, v1alpha1.DriverName)
		}
		parameters, err := v1alpha1.DecodeParameters(raw)
		if err != nil {
			return found, fmt.Errorf("request %s: its DeviceClass: %w", request, err)
		}
		found = parameters
	}
	if found.Step == "" {
		return found, fmt.Errorf("the DeviceClass of request %s does not name the NetworkTopology that attaches "+
			"the device: use a class that the controller created for a topology", request)
	}
	return found, nil
}

// decodeAll decodes a claim's opaque configurations for a request, and returns the parameters for the interfaces. The
// error lists all invalid configurations.
func decodeAll(claim *resourceapi.ResourceClaim, request string, opaque [][]byte) ([]v1alpha1.ClaimParameters, error) {
	var all []v1alpha1.ClaimParameters
	var unreadable []string
	for _, raw := range opaque {
		parameters, err := v1alpha1.DecodeClaimParameters(raw)
		if err != nil {
			unreadable = append(unreadable, err.Error())
		}
		all = append(all, parameters)
	}
	if len(unreadable) > 0 {
		return nil, fmt.Errorf("claim %s/%s: configuration for %s of request %s: %s", claim.Namespace,
			cmp.Or(claim.Name, claim.GenerateName), v1alpha1.DriverName, request, strings.Join(unreadable, "; "))
	}
	return all, nil
}

// opaqueParameters returns the driver's parameters for a request from the given source: the claim or its class.
func opaqueParameters(
	claim *resourceapi.ResourceClaim, request string, source resourceapi.AllocationConfigSource,
) [][]byte {
	var found [][]byte
	for _, config := range claim.Status.Allocation.Devices.Config {
		if config.Source == source && config.Opaque != nil && config.Opaque.Driver == v1alpha1.DriverName &&
			appliesTo(config.Requests, request) {
			found = append(found, config.Opaque.Parameters.Raw)
		}
	}
	return found
}

// appliesTo reports whether a configuration for the listed requests applies to request. As in the API, an empty list
// means all requests, and a request includes its subrequests. For example, the configuration for the request nic
// applies to its alternative nic/fast.
func appliesTo(requests []string, request string) bool {
	if len(requests) == 0 {
		return true
	}
	for _, candidate := range requests {
		if candidate == request || candidate == resourceclaim.BaseRequestRef(request) {
			return true
		}
	}
	return false
}
