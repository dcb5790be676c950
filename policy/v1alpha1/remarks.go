package v1alpha1

import (
	"fmt"
	"maps"
	"slices"
)

// Remarks returns remarks about the parts of a valid policy whose effect may differ from the author's intention. Each
// remark suggests an alternative.
func Remarks(p *DeviceExposurePolicy) []string {
	e := p.Spec.Exposure
	if p.Spec.Action == ActionExclude || e == nil {
		return nil
	}
	var remarks []string
	for _, plugin := range e.SupportedCNIPlugins {
		if !e.AllowMultipleAllocations && !plugin.Exclusive {
			remarks = append(remarks, fmt.Sprintf("plugin %s is not exclusive, and one claim takes the device since "+
				"allowMultipleAllocations is false: set exclusive to true for the plugin, or "+
				"allowMultipleAllocations to true", plugin.Name))
		}
	}
	for _, remark := range []string{bandwidthRemark(e), mixtureRemark(e)} {
		if remark != "" {
			remarks = append(remarks, remark)
		}
	}
	return append(remarks, sharingRemarks(e)...)
}

// mixtureRemark warns that claims that share a device may request plugins that exclude each other: macvlan and ipvlan
// both register the only receive handler of their parent (netdev_rx_handler_register). It returns "" if this cannot
// happen.
func mixtureRemark(e *Exposure) string {
	shares := func(name string) bool {
		return slices.ContainsFunc(e.SupportedCNIPlugins, func(p CNIPlugin) bool {
			return p.Name == name && !p.Exclusive
		})
	}
	if !e.AllowMultipleAllocations || !shares("macvlan") || !shares("ipvlan") {
		return ""
	}
	return "macvlan and ipvlan cannot share a device, but claims for both could get the same device: write one " +
		"policy for each, with the same exclusionGroup"
}

// UnlimitedCounter is the counter that is published for shared devices if the policy defines no capacity, since the
// scheduler must have something to count. Its value, UnlimitedShares, exceeds the number of pods on any node.
const (
	UnlimitedCounter = "shares"
	UnlimitedShares  = 1_000_000
)

// UnlimitedRemark returns the remark about a policy that shares devices without defining a capacity. The code that
// publishes the devices uses the same text, so that users see the remark only once.
func UnlimitedRemark() string {
	return fmt.Sprintf("the number of claims that share a device is not limited: it is published with a counter %q of "+
		"%d; add a counter to capacity to limit them", UnlimitedCounter, UnlimitedShares)
}

func sharingRemarks(e *Exposure) []string {
	if !e.AllowMultipleAllocations {
		return nil
	}
	if len(e.Capacity) == 0 {
		return []string{UnlimitedRemark()}
	}
	consumed := map[string]bool{}
	for _, p := range e.SupportedCNIPlugins {
		for counter := range p.ConsumePerAllocation {
			consumed[counter] = consumed[counter] || !p.Exclusive
		}
	}
	var remarks []string
	for _, counter := range slices.Sorted(maps.Keys(e.Capacity)) {
		request := e.Capacity[counter].RequestPolicy
		if !consumed[counter] && (request == nil || request.Default == nil) {
			remarks = append(remarks,
				fmt.Sprintf("capacity[%s] has no default request, so each claim takes 1: set requestPolicy.default",
					counter))
		}
	}
	return remarks
}

// bandwidthRemark lists the bandwidths in a valid exposure that no claim can get, and explains how to offer them. It
// returns "" if claims can get all bandwidths. Kubernetes does not yet have counters that let a claim take a requested
// amount, so ranges are reserved for later releases; linkBandwidth does not need such counters.
func bandwidthRemark(e *Exposure) string {
	c, ok := e.Capacity[Bandwidth]
	if e.AllowMultipleAllocations || !ok || c.RequestPolicy == nil || c.RequestPolicy.ValidRange == nil {
		return ""
	}
	r := c.RequestPolicy
	greatest := &c.Value
	if r.ValidRange.Max != nil {
		greatest = r.ValidRange.Max
	}
	return fmt.Sprintf("capacity[%s].requestPolicy.validRange cannot be supported on this Kubernetes version, where "+
		"every virtual function has the default, %s: "+
		"a claim that requests more, up to %s, is never allocated, and a claim that requests less, down to %s, takes "+
		"%s; list the amounts in validValues to offer each of them, or write the range in linkBandwidth, so that "+
		"claims choose any amount in it", Bandwidth, r.Default, greatest, r.ValidRange.Min, r.Default)
}
