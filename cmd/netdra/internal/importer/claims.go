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

// request is the name of the only request in a template.
const request = "net"

// template creates the claim template for a network in a namespace. An imported topology has one root step, so a claim
// requests one class.
func template(n *network, namespace, name string) *resourceapi.ResourceClaimTemplate {
	t := &resourceapi.ResourceClaimTemplate{}
	t.APIVersion, t.Kind = resourceapi.SchemeGroupVersion.String(), "ResourceClaimTemplate"
	t.Namespace, t.Name = namespace, name
	t.Spec.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: request,
		Exactly: &resourceapi.ExactDeviceRequest{
			DeviceClassName: v1alpha1.ClassName(n.topology.Name, n.topology.Spec.Steps[0].Name)}}}
	return t
}

// choose adds a pod's parameters for the interface to a template, step by step. It first decodes them with the driver's
// own function, so that no pod is stuck waiting for a claim that the driver rejects.
func choose(t *resourceapi.ResourceClaimTemplate, all []v1alpha1.ClaimParameters) error {
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

// pick restricts a template to one device. Some devices in the class may have no address, and the scheduler aborts
// scheduling a pod if a selector reads an absent attribute.
func pick(t *resourceapi.ResourceClaimTemplate, address string) {
	t.Spec.Spec.Devices.Requests[0].Exactly.Selectors = []resourceapi.DeviceSelector{{
		CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf(`device.attributes[%q].?pciAddress.orValue("") == %q`,
			policyapi.AttributeDomain, pciAddress(address))},
	}}
}

// stepThatTakes returns the topology step that lets claims set a parameter; empty if there is none.
func stepThatTakes(topology *v1alpha1.NetworkTopology, parameter v1alpha1.ClaimParameter) string {
	for i := range topology.Spec.Steps {
		if slices.Contains(topology.Spec.Steps[i].ClaimParameters, parameter) {
			return topology.Spec.Steps[i].Name
		}
	}
	return ""
}

// podRequests are a pod's parameters for one interface. Empty fields request nothing.
type podRequests struct {
	mac, interfaceName string
	ips                []string
}

// parameters assigns the requests to the steps that support them. For unsupported requests, refused contains a message.
func (w podRequests) parameters(topology *v1alpha1.NetworkTopology) (all []v1alpha1.ClaimParameters, refused []string) {
	set := func(parameter v1alpha1.ClaimParameter, assign func(*v1alpha1.ClaimParameters)) {
		step := stepThatTakes(topology, parameter)
		if step == "" {
			refused = append(refused, fmt.Sprintf("the topology %s does not let claims set "+
				"%s", topology.Name, parameter))
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
