package claimspec

import (
	"encoding/json"
	"slices"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// ipamStatic is the IPAM plugin without addresses of its own: it assigns the configured ones.
const ipamStatic = "static"

// NeedsIPs reports whether the interface of a step gets addresses from claims only: claims may choose them, and nothing
// else has any.
func NeedsIPs(step *v1alpha1.Step) bool {
	return slices.Contains(step.ClaimParameters, v1alpha1.ClaimIPs) && LacksAddresses(step)
}

// LacksAddresses reports whether neither the IPAM plugin of a step nor its configuration has addresses. Plugins
// attach no interface whose IPAM plugin gives none.
func LacksAddresses(step *v1alpha1.Step) bool {
	if step.Config == nil {
		return false
	}
	var config struct {
		IPAM struct {
			Type      string `json:"type"`
			Addresses any    `json:"addresses"`
		} `json:"ipam"`
		// The following fields take precedence over the addresses of ipam.
		Args struct {
			CNI struct {
				IPs any `json:"ips"`
			} `json:"cni"`
		} `json:"args"`
		RuntimeConfig struct {
			IPs any `json:"ips"`
		} `json:"runtimeConfig"`
	}
	if json.Unmarshal(step.Config.Raw, &config) != nil || config.IPAM.Type != ipamStatic {
		return false // what cannot be read is refused elsewhere
	}
	return isEmpty(config.IPAM.Addresses) && isEmpty(config.Args.CNI.IPs) && isEmpty(config.RuntimeConfig.IPs)
}

// isEmpty reports whether a list is not there, or has no elements. A template is something.
func isEmpty(value any) bool {
	list, isList := value.([]any)
	return value == nil || isList && len(list) == 0
}
