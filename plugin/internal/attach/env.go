package attach

import (
	"encoding/json"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

// InterfaceDocument is the value of an interface's JSON variable: everything that an application needs to know about
// the interface, in a single value. It is an API: its field names never change, but fields may be added.
type InterfaceDocument struct {
	Interface string `json:"interface"`
	// Request is the name of the request in the claim.
	Request string `json:"request"`
	// Pool and Device identify the allocated device, as in the claim's status.
	Pool   string `json:"pool"`
	Device string `json:"device"`
	MAC    string `json:"mac,omitempty"`
	// MTU is absent if the plugin does not return it.
	MTU int `json:"mtu,omitempty"`
	// IPs include the prefix length.
	IPs []string `json:"ips,omitempty"`
	// Gateways are the gateways for the IPs, without duplicates.
	Gateways []string `json:"gateways,omitempty"`
}

// interfaceEnv returns the environment variables that describe the interfaces for part of a claim to containers: their
// name, request, MAC address and IP addresses, as returned by the plugins, both individually and in one document. As in
// verbsEnv, there are no variables for values that are not unique in the pod, nor for claims that several pods may
// share. While a claim has several sandboxes, only values that are equal in all of them are included: a container must
// not get the addresses of another sandbox.
func interfaceEnv(record *claims.Record, sandboxes [][]executor.StepRecord, part Part) []string {
	if record.Shareable || len(sandboxes) == 0 {
		return nil
	}
	env := envOfSandbox(record, sandboxes[0], part)
	for _, steps := range sandboxes[1:] {
		same := envOfSandbox(record, steps, part)
		env = slices.DeleteFunc(env, func(variable string) bool { return !slices.Contains(same, variable) })
	}
	return env
}

// envOfSandbox returns the variables of interfaceEnv for one sandbox. If two interfaces of the pod, such as net-1 and
// net_1, would share a prefix, there are no variables with that prefix.
func envOfSandbox(record *claims.Record, steps []executor.StepRecord, part Part) []string {
	names := map[string]string{} // of the pod's interfaces, by prefix; "" for several
	for i := range steps {
		prefix, ifName := envPrefix(steps[i].IfName), steps[i].IfName
		if known, found := names[prefix]; found && known != ifName {
			ifName = ""
		}
		names[prefix] = ifName
	}
	var env []string
	for i := range record.Devices {
		held := &record.Devices[i]
		request := resourceclaim.BaseRequestRef(held.Request)
		if part.Request != "" && part.Request != request {
			continue
		}
		data := NetworkData(steps, part.ClaimUID, held)
		if data == nil || !isPrintable(data.InterfaceName) || names[envPrefix(data.InterfaceName)] == "" {
			continue
		}
		prefix := envPrefix(data.InterfaceName)
		final := finalStep(steps, part.ClaimUID, held)
		env = append(env, prefix+"INTERFACE="+data.InterfaceName)
		for _, variable := range []struct{ name, value string }{{"REQUEST", request}, {"MAC", data.HardwareAddress},
			{"IPS", strings.Join(data.IPs, ",")}, {"JSON", document(data, request, held, final)}} {
			if isPrintable(variable.value) {
				env = append(env, prefix+variable.name+"="+variable.value)
			}
		}
	}
	return distinct(env)
}

// document returns the InterfaceDocument of an interface as JSON. The interface must have a final step.
func document(
	data *resourceapi.NetworkDeviceData, request string, held *claims.HeldDevice, final *executor.StepRecord,
) string {
	described := InterfaceDocument{Interface: data.InterfaceName, Request: request, Pool: held.Pool, Device: held.Name,
		MAC: data.HardwareAddress, IPs: data.IPs}
	if index := interfaceIndex(final.Merged, final.IfName); index >= 0 {
		described.MTU = final.Merged.Interfaces[index].Mtu
	}
	for _, ip := range addressesOf(final) {
		if gateway := ip.Gateway.String(); ip.Gateway != nil && len(described.Gateways) < maxAddresses &&
			!slices.Contains(described.Gateways, gateway) {
			described.Gateways = append(described.Gateways, gateway)
		}
	}
	text, err := json.Marshal(described)
	if err != nil {
		return "" // cannot happen: strings and numbers can be encoded
	}
	return string(text)
}

// distinct returns the variables that have only one value: several devices of a claim may share a final interface, such
// as the ports of a bond.
func distinct(env []string) []string {
	values := map[string][]string{}
	for _, variable := range env {
		name, value, _ := strings.Cut(variable, "=")
		if !slices.Contains(values[name], value) {
			values[name] = append(values[name], value)
		}
	}
	var found []string
	for _, variable := range env {
		name, _, _ := strings.Cut(variable, "=")
		if len(values[name]) == 1 && !slices.Contains(found, variable) {
			found = append(found, variable)
		}
	}
	return found
}
