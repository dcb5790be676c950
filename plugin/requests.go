package plugin

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// allocated is one result of an allocation with the parameters of its class, and with what the claim wants of its interfaces.
type allocated struct {
	resourceapi.DeviceRequestAllocationResult
	parameters v1alpha1.Parameters
	wanted     []v1alpha1.ClaimParameters
}

// ourResults returns the devices of our driver that are to be attached, in request order. Devices for administrative
// access are not.
func ourResults(claim *resourceapi.ResourceClaim) ([]allocated, error) {
	var results []allocated
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver != v1alpha1.DriverName || ptr.Deref(result.AdminAccess, false) {
			continue
		}
		if asksForAll(claim, result.Request) {
			return nil, fmt.Errorf("request %s has allocationMode All: how many interfaces a pod gets must not depend on the node; ask for a count", result.Request)
		}
		wanted, err := wantedOf(claim, result.Request)
		if err != nil {
			return nil, err
		}
		parameters, err := parametersOf(claim, result.Request)
		if err != nil {
			return nil, err
		}
		results = append(results, allocated{DeviceRequestAllocationResult: result, parameters: parameters, wanted: wanted})
	}
	return results, oneInterfaceEach(results)
}

// oneInterfaceEach refuses parameters of a claim that would be those of several interfaces.
func oneInterfaceEach(results []allocated) error {
	for i := range results {
		for j := range results[:i] {
			if results[i].Request == results[j].Request && len(results[i].wanted) > 0 {
				return fmt.Errorf("request %s has several devices and configuration for %s, which would be that of all of them: ask for each device in a request of its own", results[i].Request, v1alpha1.DriverName)
			}
		}
	}
	return nil
}

// asksForAll says whether a request, or the alternative of it that was chosen, wants every device there is.
func asksForAll(claim *resourceapi.ResourceClaim, request string) bool {
	for _, asked := range claim.Spec.Devices.Requests {
		if asked.Exactly != nil && asked.Name == request && asked.Exactly.AllocationMode == resourceapi.DeviceAllocationModeAll {
			return true
		}
		for _, alternative := range asked.FirstAvailable {
			if resourceclaim.CreateSubRequestRef(asked.Name, alternative.Name) == request && alternative.AllocationMode == resourceapi.DeviceAllocationModeAll {
				return true
			}
		}
	}
	return false
}

// parametersOf returns the parameters of a request's class: which step of which topology attaches its devices. Only a class may
// say that. A claim is a namespace user's, who must not choose what runs on the host.
func parametersOf(claim *resourceapi.ResourceClaim, request string) (v1alpha1.Parameters, error) {
	found := v1alpha1.Parameters{}
	for _, raw := range opaque(claim, request, resourceapi.AllocationConfigSourceClass) {
		if found.Step != "" {
			return found, fmt.Errorf("request %s has several configurations for %s in its DeviceClass: keep one", request, v1alpha1.DriverName)
		}
		parameters, err := v1alpha1.DecodeParameters(raw)
		if err != nil {
			return found, fmt.Errorf("request %s: its DeviceClass: %w", request, err)
		}
		found = parameters
	}
	if found.Step == "" {
		return found, fmt.Errorf("the DeviceClass of request %s does not say which NetworkTopology attaches the device: use a class that the controller made for a topology", request)
	}
	return found, nil
}

// wantedOf returns what a claim wants of the interfaces of a request.
func wantedOf(claim *resourceapi.ResourceClaim, request string) ([]v1alpha1.ClaimParameters, error) {
	var wanted []v1alpha1.ClaimParameters
	for _, raw := range opaque(claim, request, resourceapi.AllocationConfigSourceClaim) {
		parameters, err := v1alpha1.DecodeClaimParameters(raw)
		if err != nil {
			return nil, fmt.Errorf("request %s: the claim's configuration for %s: %w; a claim may set %v and nothing else, where its topology allows it",
				request, v1alpha1.DriverName, err, v1alpha1.ClaimParameterNames())
		}
		wanted = append(wanted, parameters)
	}
	return wanted, nil
}

// opaque returns the parameters for us that a source has for a request.
func opaque(claim *resourceapi.ResourceClaim, request string, source resourceapi.AllocationConfigSource) [][]byte {
	var found [][]byte
	for _, config := range claim.Status.Allocation.Devices.Config {
		if config.Source == source && config.Opaque != nil && config.Opaque.Driver == v1alpha1.DriverName && appliesTo(config.Requests, request) {
			found = append(found, config.Opaque.Parameters.Raw)
		}
	}
	return found
}

// appliesTo follows the API: no requests mean all; a request stands for its subrequests.
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
