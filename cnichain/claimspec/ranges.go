package claimspec

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// ipamHostLocal is the IPAM plugin whose ranges are read here: it refuses addresses that are in none of them.
const ipamHostLocal = "host-local"

// ipRange is a range of host-local (plugins/ipam/host-local/backend/allocator, Range).
type ipRange struct {
	Subnet     string `json:"subnet"`
	RangeStart string `json:"rangeStart"`
	RangeEnd   string `json:"rangeEnd"`
}

// ipRangesOf returns the ranges of a step's IPAM plugin; none where nothing can be said of them: another plugin, ranges
// that are templates, or given in another way.
func ipRangesOf(step *v1alpha1.Step) []ipRange {
	if step.Config == nil {
		return nil
	}
	var config struct {
		IPAM struct {
			ipRange             // the form of one range
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

// isReadable reports whether the range is made of addresses: templates are filled in for a pod.
func (r *ipRange) isReadable() bool {
	if _, err := netip.ParsePrefix(r.Subnet); err != nil {
		return false
	}
	for _, end := range []string{r.RangeStart, r.RangeEnd} {
		if _, err := netip.ParseAddr(end); end != "" && err != nil {
			return false
		}
	}
	return true
}

// contains reports whether the plugin may give an address of the range. The range is readable.
func (r *ipRange) contains(address netip.Addr) bool {
	if subnet, err := netip.ParsePrefix(r.Subnet); err != nil || !subnet.Contains(address) {
		return false
	}
	if first, err := netip.ParseAddr(r.RangeStart); err == nil && address.Less(first) {
		return false
	}
	last, err := netip.ParseAddr(r.RangeEnd)
	return err != nil || !last.Less(address)
}

func (r *ipRange) String() string {
	if r.RangeStart == "" && r.RangeEnd == "" {
		return r.Subnet
	}
	return fmt.Sprintf("%s (%s-%s)", r.Subnet, r.RangeStart, r.RangeEnd)
}

// outOfRange returns what is wrong with an address that a claim asks of a step; empty if nothing is known.
func outOfRange(step *v1alpha1.Step, text string) string {
	ranges := ipRangesOf(step)
	asked, err := netip.ParsePrefix(text)
	if err != nil || len(ranges) == 0 ||
		slices.ContainsFunc(ranges, func(r ipRange) bool { return r.contains(asked.Addr()) }) {
		return ""
	}
	var known []string
	for i := range ranges {
		known = append(known, ranges[i].String())
	}
	return fmt.Sprintf("its IPAM plugin gives addresses of %s: ask for one of these, or for none",
		strings.Join(known, ", "))
}
