package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// use is a way of using a NIC that a policy offers.
type use struct {
	name   string // also the suffix of the device name
	plugin string // the CNI plugin, and the class for it
	// function is true if the use requires a virtual function on the NIC. Each claim is allocated a different function
	// for its exclusive use.
	function bool
	// exclusive is true if no other use of the NIC is possible at the same time.
	exclusive bool
	// capacity is the name of the capacity that is shared by the users of a NIC.
	capacity string
	// group is the exclusion group: no other use in the same group is possible at the same time.
	group string
}

// policy returns the administrator's policy for the use.
func (u use) policy(t *testing.T) v1alpha1.DeviceExposurePolicy {
	t.Helper()
	types := `["pf", "nic"]`
	if u.function {
		types = `["vf"]`
	}
	exposure := fmt.Sprintf("supportedCNIPlugins: [{name: %s, exclusive: true}]", u.plugin)
	if !u.function && !u.exclusive {
		exposure = fmt.Sprintf(`supportedCNIPlugins: [{name: %s}], exclusionGroup: %q, allowMultipleAllocations: true,
  capacity: {%s: {value: "8", requestPolicy: {default: "1"}}}`, u.plugin, u.group, u.capacity)
	}
	return exposurePolicy(t, u.name, fmt.Sprintf(`
selector: {cel: 'device.attributes["dra.networking"].type in %s'}
action: expose
exposure: {deviceNameSuffix: -%s, %s}
`, types, u.name, exposure))
}

// exposurePolicy returns a policy with the given spec, which is YAML.
func exposurePolicy(t *testing.T, name, spec string) v1alpha1.DeviceExposurePolicy {
	t.Helper()
	return v1alpha1.DeviceExposurePolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: parse[v1alpha1.DeviceExposurePolicySpec](t, spec),
	}
}

// together reports whether the design allows two claims to use one NIC concurrently in these two ways.
func together(a, b use) bool {
	switch {
	case a.function && b.function:
		return true // there are enough virtual functions
	case a.exclusive || b.exclusive:
		return false // a claim for the NIC also covers its virtual functions
	case a.function || b.function || a == b:
		return true
	}
	return a.group == "" || a.group != b.group
}

// nics is a machine whose NICs are all offered for the same uses.
type nics struct {
	name, title string
	functions   int // per NIC; a NIC without virtual functions is not a physical function
	uses        []use
	// hidden is true if a policy hides the NICs themselves.
	hidden bool
}

// policies returns the machine's policies.
func (c nics) policies(t *testing.T) []v1alpha1.DeviceExposurePolicy {
	t.Helper()
	var list []v1alpha1.DeviceExposurePolicy
	for _, u := range c.uses {
		list = append(list, u.policy(t))
	}
	if c.hidden {
		list = append(list,
			exposurePolicy(t, "hidden",
				`{action: exclude, selector: {cel: 'device.attributes["dra.networking"].type == "pf"'}}`))
	}
	return list
}

// entries returns the number of published devices for each NIC and its virtual functions.
func (c nics) entries() int {
	count := 0
	for _, u := range c.uses {
		if count++; u.function {
			count += c.functions - 1
		}
	}
	return count
}

func exclusionMachines() []nics {
	macvlan := use{name: "macvlan", plugin: "macvlan", capacity: "macvlans", group: "rx-handler"}
	ipvlan := use{name: "ipvlan", plugin: "ipvlan", capacity: "ipvlans", group: "rx-handler"}
	passthrough := use{name: "passthrough", plugin: "host-device", exclusive: true}
	takeover := use{name: "takeover", plugin: "sriov", exclusive: true}
	vf := use{name: "vf", plugin: "sriov", function: true}
	free := func(u use) use { u.capacity, u.group = "shares", ""; return u }
	return []nics{
		{name: "grouped", title: "macvlan and ipvlan exclude each other", functions: 3,
			uses: []use{macvlan, ipvlan, passthrough, vf}},
		{name: "ungrouped", title: "macvlan and ipvlan have no group, and capacities of the same name", functions: 3,
			uses: []use{free(macvlan), free(ipvlan), passthrough, vf}},
		{name: "nic", title: "NICs without virtual functions", uses: []use{passthrough, takeover, macvlan, ipvlan}},
		{name: "hidden", title: "hidden NICs", functions: 3, uses: []use{vf}, hidden: true},
	}
}

// series is a sequence of uses of one NIC. All uses except the last are possible at the same time.
type series []use

func (s series) names() string {
	var names []string
	for _, u := range s {
		names = append(names, u.name)
	}
	return strings.Join(names, ", ")
}

// arrivals returns the arrivals with which to try the series. For long series, package slices tests the other arrivals.
func (s series) arrivals() []string {
	if len(s) > 2 {
		return allArrivals()[:1]
	}
	return allArrivals()
}

// fits reports whether the last use is possible in addition to all previous uses.
func (s series) fits() bool {
	last := s[len(s)-1]
	return !slices.ContainsFunc(s[:len(s)-1], func(u use) bool { return !together(u, last) })
}

// allSeries returns all series with the given length.
func (c nics) allSeries(length int) []series {
	if length == 0 {
		return []series{nil}
	}
	var all []series
	for _, before := range c.allSeries(length - 1) {
		if len(before) > 1 && !before.fits() {
			continue
		}
		for _, u := range c.uses {
			all = append(all, append(slices.Clone(before), u))
		}
	}
	return all
}

// allArrivals returns the ways that a series can reach the scheduler: as one pod per use, as one pod with one claim per
// use, or as a single claim.
func allArrivals() []string { return []string{"pods", "claims", "requests"} }
