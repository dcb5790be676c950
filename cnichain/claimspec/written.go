package claimspec

import (
	"cmp"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// CheckWritten reports the problems that will prevent every node from preparing a claim, as far as they are known when
// the claim is created and has no devices yet. path is the field that contains the claim's specification. The path of
// every problem is the devices field below it.
//
// If a request is for a DeviceClass that the controller generated for the topologies (status.deviceClasses),
// CheckWritten checks the request as if it were allocated. It accepts requests for other classes, and requests with
// alternatives, from which the scheduler chooses one. Such requests may cover the remaining steps of a topology, so if
// a claim has any, CheckWritten does not report missing steps.
func CheckWritten(
	claim *resourceapi.ResourceClaim, topologies []*v1alpha1.NetworkTopology, path *field.Path,
) field.ErrorList {
	var devices []Device
	var texts []string
	report := func(text string) {
		if !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	for i := range claim.Spec.Devices.Requests {
		given, err := writtenDevices(claim, &claim.Spec.Devices.Requests[i], topologies)
		devices = append(devices, given...)
		if err != nil {
			report(err.Error())
		}
	}
	if err := checkOneInterfaceEach(devices); err != nil {
		report(err.Error())
	}
	if len(texts) > 0 {
		topologies = nil // skip the checks below, since the claim's parameters are incomplete
	}
	for _, topology := range topologies {
		spec := SpecOf(topology, claim.Namespace+"/"+cmp.Or(claim.Name, claim.GenerateName), devices)
		if len(spec.Roots) == 0 {
			continue
		}
		check := spec.Check
		if mayHaveMore(claim, topologies) {
			check = spec.checkGiven
		}
		for _, problem := range check() {
			report(fmt.Sprintf("NetworkTopology %s: %s", topology.Name, problem.Error()))
		}
	}
	var problems field.ErrorList
	for _, text := range texts {
		problems = append(problems, field.Invalid(path.Child("devices"), field.OmitValueType{}, text))
	}
	return problems
}

// writtenDevices returns the devices that a request will get, without their names, if the request is for a class that
// was generated for one of the topologies.
func writtenDevices(
	claim *resourceapi.ResourceClaim, request *resourceapi.DeviceRequest, topologies []*v1alpha1.NetworkTopology,
) ([]Device, error) {
	if request.Exactly == nil || ptr.Deref(request.Exactly.AdminAccess, false) {
		return nil, nil
	}
	class, found := rootOf(request.Exactly.DeviceClassName, topologies)
	if !found {
		return nil, nil
	}
	if request.Exactly.AllocationMode == resourceapi.DeviceAllocationModeAll {
		return nil, allRefused(request.Name)
	}
	parameters, err := decodeAll(claim, request.Name, writtenParameters(claim, request.Name))
	device := Device{Class: class, Parameters: parameters}
	device.Request, device.Driver = request.Name, v1alpha1.DriverName
	// A claim never gets more devices than this, and user input must not cause unlimited memory use.
	count := min(max(request.Exactly.Count, 1), resourceapi.AllocationResultsMaxSize)
	return slices.Repeat([]Device{device}, int(count)), err
}

// writtenParameters returns the driver's parameters for a request in a claim's specification.
func writtenParameters(claim *resourceapi.ResourceClaim, request string) [][]byte {
	var found [][]byte
	for _, config := range claim.Spec.Devices.Config {
		if config.Opaque != nil && config.Opaque.Driver == v1alpha1.DriverName && appliesTo(config.Requests, request) {
			found = append(found, config.Opaque.Parameters.Raw)
		}
	}
	return found
}

// rootOf returns the driver's parameters in a DeviceClass that the controller generated for a topology.
func rootOf(class string, topologies []*v1alpha1.NetworkTopology) (parameters v1alpha1.Parameters, found bool) {
	for _, topology := range topologies {
		if !slices.Contains(topology.Status.DeviceClasses, class) {
			continue
		}
		for i := range topology.Spec.Steps {
			step := &topology.Spec.Steps[i]
			if len(step.DependOn) == 0 && v1alpha1.ClassName(topology.Name, step.Name) == class {
				return v1alpha1.Parameters{NetworkTopologyRef: v1alpha1.TopologyRef{Name: topology.Name},
					Step: step.Name}, true
			}
		}
	}
	return v1alpha1.Parameters{}, false
}

// mayHaveMore reports whether a claim has requests that cannot be assigned to a step yet.
func mayHaveMore(claim *resourceapi.ResourceClaim, topologies []*v1alpha1.NetworkTopology) bool {
	return slices.ContainsFunc(claim.Spec.Devices.Requests, func(request resourceapi.DeviceRequest) bool {
		if request.Exactly == nil {
			return true
		}
		_, known := rootOf(request.Exactly.DeviceClassName, topologies)
		return !known
	})
}

// checkGiven checks the parameters that are present, but not whether any are missing.
func (s *Spec) checkGiven() field.ErrorList {
	var problems field.ErrorList
	for instance := range s.Instances() {
		given, refused := s.Parameters(instance)
		problems = append(problems, refused...)
		problems = append(problems, s.checkRanges(given)...)
	}
	return problems
}
