package importer

import (
	"encoding/json"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// request is the request name in templates with a single request. In other templates, requests are named after the root
// steps.
const request = "net"

// template creates the claim template for a network in a namespace, with one request for each root step.
func template(n *network, namespace, name string) *resourceapi.ResourceClaimTemplate {
	t := &resourceapi.ResourceClaimTemplate{}
	t.APIVersion, t.Kind = resourceapi.SchemeGroupVersion.String(), "ResourceClaimTemplate"
	t.Namespace, t.Name = namespace, name
	requests := &t.Spec.Spec.Devices.Requests
	for i := range n.topology.Spec.Steps {
		if step := &n.topology.Spec.Steps[i]; len(step.DependOn) == 0 {
			class := v1alpha1.ClassName(n.topology.Name, step.Name)
			*requests = append(*requests, resourceapi.DeviceRequest{Name: step.Name,
				Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class}})
		}
	}
	if len(*requests) == 1 {
		(*requests)[0].Name = request
	}
	return t
}

// choose adds a pod's parameters for an interface to a request in a template, step by step. It first decodes the
// parameters with the driver's own function, so that no pod gets stuck because the driver rejects its claim.
func choose(t *resourceapi.ResourceClaimTemplate, request string, all []v1alpha1.ClaimParameters) error {
	for i := range all {
		all[i].APIVersion, all[i].Kind = v1alpha1.GroupVersion().String(), v1alpha1.ClaimParametersKind
		raw, err := json.Marshal(&all[i])
		if err == nil {
			_, err = v1alpha1.DecodeClaimParameters(raw)
		}
		if err != nil {
			return err
		}
		t.Spec.Spec.Devices.Config = append(t.Spec.Spec.Devices.Config, resourceapi.DeviceClaimConfiguration{
			Requests: []string{request},
			DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
				Driver: policyapi.AttributeDomain, Parameters: runtime.RawExtension{Raw: raw}}},
		})
	}
	return nil
}

// pick restricts a request in a template to one device. The selector tolerates devices without an address, because some
// devices in the class may not have one, and the scheduler gives up on a pod if a selector reads a missing attribute.
func pick(t *resourceapi.ResourceClaimTemplate, request, address string) {
	expression := fmt.Sprintf(`device.attributes[%q].?pciAddress.orValue("") == %q`, policyapi.AttributeDomain,
		pciAddress(address))
	for i := range t.Spec.Spec.Devices.Requests {
		if r := &t.Spec.Spec.Devices.Requests[i]; r.Name == request {
			r.Exactly.Selectors = []resourceapi.DeviceSelector{{
				CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}
		}
	}
}

// stepThatTakes returns the name of the step that allows claims to set a parameter; empty if there is none.
func stepThatTakes(steps []v1alpha1.Step, parameter v1alpha1.ClaimParameter) string {
	for i := range steps {
		if slices.Contains(steps[i].ClaimParameters, parameter) {
			return steps[i].Name
		}
	}
	return ""
}

// podRequests contains the parameters that a pod sets for one interface. Empty fields are not set.
type podRequests struct {
	mac, interfaceName string
	ips                []string
}

// parameters assigns the requests to those steps of a network that support them. refused lists the parameters that no
// step supports.
func (w podRequests) parameters(steps []v1alpha1.Step) (all []v1alpha1.ClaimParameters, refused []string) {
	set := func(parameter v1alpha1.ClaimParameter, assign func(*v1alpha1.ClaimParameters)) {
		step := stepThatTakes(steps, parameter)
		if step == "" {
			refused = append(refused, string(parameter))
			return
		}
		i := slices.IndexFunc(all, func(p v1alpha1.ClaimParameters) bool { return p.Step == step })
		if i < 0 {
			i, all = len(all), append(all, v1alpha1.ClaimParameters{Step: step})
		}
		assign(&all[i])
	}
	if w.mac != "" {
		set(v1alpha1.ClaimMAC, func(p *v1alpha1.ClaimParameters) { p.MAC = w.mac })
	}
	if len(w.ips) > 0 {
		set(v1alpha1.ClaimIPs, func(p *v1alpha1.ClaimParameters) { p.IPs = w.ips })
	}
	if w.interfaceName != "" {
		set(v1alpha1.ClaimInterfaceName, func(p *v1alpha1.ClaimParameters) { p.InterfaceName = w.interfaceName })
	}
	return all, refused
}
