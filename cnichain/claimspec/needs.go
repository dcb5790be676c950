package claimspec

import (
	"encoding/json"
	"slices"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// ipamStatic is the IPAM plugin that assigns the configured addresses rather than addresses from a pool.
const ipamStatic = "static"

// NeedsIPs reports whether claims are the only source of addresses for a step's interface: claims may set addresses,
// and neither the step nor its IPAM plugin provides any.
func NeedsIPs(step *v1alpha1.Step) bool {
	return slices.Contains(step.ClaimParameters, v1alpha1.ClaimIPs) && LacksAddresses(step)
}

// LacksAddresses reports whether neither a step's IPAM plugin nor the step's configuration provides addresses. Plugins
// do not attach an interface if its IPAM plugin returns no address.
func LacksAddresses(step *v1alpha1.Step) bool {
	if step.Config == nil {
		return false
	}
	var config struct {
		IPAM struct {
			Type      string `json:"type"`
			Addresses any    `json:"addresses"`
		} `json:"ipam"`
		// The following fields take precedence over the addresses in ipam.
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
		return false // other checks reject invalid configuration
	}
	return isEmpty(config.IPAM.Addresses) && isEmpty(config.Args.CNI.IPs) && isEmpty(config.RuntimeConfig.IPs)
}

// isEmpty reports whether a list is missing or has no elements. A template is treated as nonempty.
func isEmpty(value any) bool {
	list, isList := value.([]any)
	return value == nil || isList && len(list) == 0
}
