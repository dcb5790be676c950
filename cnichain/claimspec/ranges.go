package claimspec

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// ipamHostLocal is the only IPAM plugin whose ranges this package checks. The plugin rejects addresses outside its
// ranges.
const ipamHostLocal = "host-local"

// ipRange is a host-local range (plugins/ipam/host-local/backend/allocator, Range).
type ipRange struct {
	Subnet     string `json:"subnet"`
	RangeStart string `json:"rangeStart"`
	RangeEnd   string `json:"rangeEnd"`
	Gateway    string `json:"gateway"`
}

// ipRangesOf returns the ranges of a step's IPAM plugin. It returns none if the ranges cannot be determined because the
// plugin is not host-local, the ranges are templates, or the format is unknown.
func ipRangesOf(step *v1alpha1.Step) []ipRange {
	if step.Config == nil {
		return nil
	}
	var config struct {
		IPAM struct {
			ipRange             // the format with a single range
			Type    string      `json:"type"`
			Ranges  [][]ipRange `json:"ranges"`
		} `json:"ipam"`
		RuntimeConfig struct {
			IPRanges any `json:"ipRanges"`
		} `json:"runtimeConfig"`
	}
	if json.Unmarshal(step.Config.Raw, &config) != nil || config.IPAM.Type != ipamHostLocal ||
		config.RuntimeConfig.IPRanges != nil {
		return nil
	}
	ranges := slices.Concat(config.IPAM.Ranges...)
	if config.IPAM.Subnet != "" {
		ranges = append(ranges, config.IPAM.ipRange)
	}
	if slices.ContainsFunc(ranges, func(r ipRange) bool { return !r.isReadable() }) {
		return nil
	}
	return ranges
}

// isReadable reports whether all values in the range are literal addresses. Ranges with templates are not readable,
// since templates are rendered only for a specific pod.
func (r *ipRange) isReadable() bool {
	if _, err := netip.ParsePrefix(r.Subnet); err != nil {
		return false
	}
	for _, end := range []string{r.RangeStart, r.RangeEnd, r.Gateway} {
		if _, err := netip.ParseAddr(end); end != "" && err != nil {
			return false
		}
	}
	return true
}

// contains reports whether an address is in the range, which must be readable. As in the plugin (Canonicalize), the
// network address and the broadcast address are in a range only if the range includes them explicitly.
func (r *ipRange) contains(address netip.Addr) bool {
	subnet, err := netip.ParsePrefix(r.Subnet)
	if err != nil || !subnet.Contains(address) {
		return false
	}
	first, err := netip.ParseAddr(r.RangeStart)
	first = first.Unmap() // as the plugin does; an invalid address stays invalid
	if err != nil {
		first = subnet.Masked().Addr().Next()
	}
	if address.Less(first) {
		return false
	}
	last, err := netip.ParseAddr(r.RangeEnd)
	if err != nil {
		next := address.Next() // outside the subnet if address is the subnet's last address
		return !address.Is4() || subnet.Contains(next)
	}
	return !last.Unmap().Less(address)
}

// gateway returns the address that the plugin reserves for the network's router, which is the first address by default.
func (r *ipRange) gateway() netip.Addr {
	if gateway, err := netip.ParseAddr(r.Gateway); err == nil {
		return gateway
	}
	subnet, _ := netip.ParsePrefix(r.Subnet) // the range is readable
	return subnet.Masked().Addr().Next()
}

// Assigned is an address that a step's IPAM plugin assigns, or a network from which the plugin assigns addresses.
type Assigned struct {
	netip.Prefix
	// Gateway is the address of the network's router, or invalid if there is none.
	Gateway netip.Addr
}

// AssignedBy returns the addresses that a step's IPAM plugin assigns, in configuration order. exact is true if the
// plugin always assigns exactly these addresses, and false if it assigns one address from each network. AssignedBy
// returns no addresses if they cannot be determined.
func AssignedBy(step *v1alpha1.Step) (all []Assigned, exact bool) {
	for _, r := range ipRangesOf(step) {
		prefix, _ := netip.ParsePrefix(r.Subnet) // the range is readable
		all = append(all, Assigned{Prefix: prefix.Masked(), Gateway: r.gateway().Unmap()})
	}
	var config struct {
		IPAM struct {
			Type      string `json:"type"`
			Addresses []struct {
				Address netip.Prefix `json:"address"`
				Gateway netip.Addr   `json:"gateway"`
			} `json:"addresses"`
		} `json:"ipam"`
		RuntimeConfig, Args map[string]any // may replace the addresses
	}
	if len(all) > 0 || step.Config == nil || json.Unmarshal(step.Config.Raw, &config) != nil ||
		config.IPAM.Type != ipamStatic || len(config.RuntimeConfig)+len(config.Args) > 0 ||
		slices.Contains(step.ClaimParameters, v1alpha1.ClaimIPs) {
		return all, false
	}
	for _, a := range config.IPAM.Addresses {
		all = append(all, Assigned{Prefix: a.Address, Gateway: a.Gateway.Unmap()})
	}
	return all, true
}

func (r *ipRange) String() string {
	switch {
	case r.RangeStart == "" && r.RangeEnd == "":
		return r.Subnet
	case r.RangeStart == "":
		return fmt.Sprintf("%s (up to %s)", r.Subnet, r.RangeEnd)
	case r.RangeEnd == "":
		return fmt.Sprintf("%s (from %s)", r.Subnet, r.RangeStart)
	}
	return fmt.Sprintf("%s (%s-%s)", r.Subnet, r.RangeStart, r.RangeEnd)
}

// refusedAddress returns the reason why a step's IPAM plugin does not assign a requested address (an address with a
// prefix length). It returns "" if the plugin assigns the address, or if its ranges are unknown. A full-length prefix
// (/32, /128) does not request a particular network.
func refusedAddress(step *v1alpha1.Step, text string) string {
	ranges := ipRangesOf(step)
	asked, err := netip.ParsePrefix(text)
	if err != nil || len(ranges) == 0 {
		return ""
	}
	index := slices.IndexFunc(ranges, func(r ipRange) bool { return r.contains(asked.Addr()) })
	if index < 0 {
		ofNetwork := func(r ipRange) bool {
			subnet, err := netip.ParsePrefix(r.Subnet)
			return err == nil && r.RangeStart == "" && r.RangeEnd == "" && subnet.Contains(asked.Addr())
		}
		if slices.ContainsFunc(ranges, ofNetwork) {
			return "that is the address of the network or of all its hosts (broadcast), which its IPAM plugin " +
				"does not assign: request another address"
		}
		var known []string
		for i := range ranges {
			known = append(known, ranges[i].String())
		}
		return fmt.Sprintf("its IPAM plugin assigns addresses of %s: request one of these, or none",
			strings.Join(known, ", "))
	}
	network, _ := netip.ParsePrefix(ranges[index].Subnet) // valid, since it contains an address
	switch {
	case asked.Addr() == ranges[index].gateway():
		return "that is the address of the network's gateway, which its IPAM plugin does not assign: request another " +
			"address"
	case !asked.IsSingleIP() && asked.Bits() != network.Bits():
		return fmt.Sprintf("addresses of its network have a prefix of %d bits: request %s", network.Bits(),
			netip.PrefixFrom(asked.Addr(), network.Bits()))
	}
	return ""
}
