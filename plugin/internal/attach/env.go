package attach

import (
	"slices"
	"strings"

	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

// interfaceEnv are the environment variables that tell containers with a part of a claim of its interfaces: their name,
// request, MAC address and addresses, as the plugins returned them. As for verbsEnv, what is not unique in the pod has
// none, and nor has a claim that several pods may share. Where a pod has several sandboxes for a moment, what is not
// the same in all of them is left out: a container of one must not be told the addresses of another.
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

// envOfSandbox is interfaceEnv for one sandbox. A prefix that two interfaces of the pod would share, such as net-1 and
// net_1, has no variables.
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
		env = append(env, prefix+"INTERFACE="+data.InterfaceName)
		for _, variable := range []struct{ name, value string }{{"REQUEST", request}, {"MAC", data.HardwareAddress},
			{"IPS", strings.Join(data.IPs, ",")}} {
			if isPrintable(variable.value) {
				env = append(env, prefix+variable.name+"="+variable.value)
			}
		}
	}
	return distinct(env)
}

// distinct returns variables without those of a name that has several values: two devices of a claim may end in one
// interface, such as the ports of a bond.
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
