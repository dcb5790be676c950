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

// InterfaceDocument is the value of an interface's JSON variable, which contains everything that an application needs
// to know about the interface. It is an API: fields may be added, but their names never change.
type InterfaceDocument struct {
	Interface string `json:"interface"`
	// Request is the name of the request in the claim.
	Request string `json:"request"`
	// Pool and Device identify the allocated device, as in the claim's status.
	Pool   string `json:"pool"`
	Device string `json:"device"`
	MAC    string `json:"mac,omitempty"`
	// MTU is omitted if the plugin does not return one.
	MTU int `json:"mtu,omitempty"`
	// IPs include the prefix length.
	IPs []string `json:"ips,omitempty"`
	// Gateways are the gateways for the IPs, without duplicates.
	Gateways []string `json:"gateways,omitempty"`
}

// interfaceEnv returns the environment variables that describe a claim part's interfaces to containers: the name,
// request, MAC address and IP addresses of each interface, as returned by the plugins, both individually and in one
// document. As in verbsEnv, variables are omitted for values that are not unique in the pod and for claims that several
// pods may share. While a claim is attached to several sandboxes, only values that are equal in all of them are
// included, because a container must not be given the addresses of another sandbox.
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

// envOfSandbox returns the variables of interfaceEnv for one sandbox. If two interfaces in the pod would have the same
// prefix, such as net-1 and net_1, no variables with that prefix are returned.
func envOfSandbox(record *claims.Record, steps []executor.StepRecord, part Part) []string {
	names := map[string]string{} // names of the pod's interfaces by prefix; "" if several share it
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

// document returns an interface's InterfaceDocument as JSON. The interface must have a final step.
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

// distinct returns each variable once and drops variables with conflicting values: several devices of a claim may share
// a final interface, for example if they are the ports of a bond.
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
