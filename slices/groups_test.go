package slices_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/discovery"
)

func TestCompatibilityGroups(t *testing.T) {
	enslaved := pf("enp3s0f0", 2)
	enslaved[1].Master, enslaved[1].MasterKind = "br-data", "bridge"
	open := func(spec string) string { return strings.Replace(spec, "exclusionGroup: rx-handler", "", 1) }
	other := func(spec string) string {
		return strings.Replace(spec, "rx-handler", "tc", 1)
	}
	whole := strings.Replace(passthroughPolicy, "-passthrough", "-whole", 1)
	for name, test := range map[string]struct {
		devices  []discovery.Device
		policies []string
		want     string
	}{
		"an exclusion group": {nics(), []string{macvlanPolicy, ipvlanPolicy, passthroughPolicy}, `
pool worker-1/eth1
  set eth1-counters: exclusion-slots=1
  set eth1-group-rx-handler: exclusion-slots=1
  slice of 3
  device eth1-ipvlan shared dra.networking/ipvlans=4/1 <- exclusion-slots=0 [only-eth1-ipvlan]
  device eth1-macvlan shared dra.networking/macvlans=4/1 <- exclusion-slots=0 [only-eth1-macvlan]
  device eth1-passthrough <- exclusion-slots=1 [only-eth1-passthrough] <- exclusion-slots=1 [only-eth1-passthrough]
`},
		"no exclusion group": {nics(), []string{open(macvlanPolicy), open(ipvlanPolicy), passthroughPolicy, whole}, `
pool worker-1/eth1
  set eth1-counters: exclusion-slots=1
  slice of 4
  device eth1-ipvlan shared dra.networking/ipvlans=4/1 <- exclusion-slots=0 [shared]
  device eth1-macvlan shared dra.networking/macvlans=4/1 <- exclusion-slots=0 [shared]
  device eth1-passthrough <- exclusion-slots=1 [only-eth1-passthrough]
  device eth1-whole <- exclusion-slots=1 [only-eth1-whole]
`},
		"virtual functions, one of them enslaved": {enslaved,
			[]string{macvlanPolicy, passthroughPolicy, vf(vfExclusive), vf(vfSpare)}, `
pool worker-1/enp3s0f0
  set enp3s0f0-counters: bandwidth=25k exclusion-slots=0
  set enp3s0f0-group-rx-handler: exclusion-slots=1
  set enp3s0f0-vfs-0: v0-lock=1 v1-lock=1
  slice of 6
  device enp3s0f0-macvlan shared dra.networking/macvlans=4/1 <- exclusion-slots=0 [only-enp3s0f0-macvlan]
  device enp3s0f0-passthrough <- exclusion-slots=1 [only-enp3s0f0-passthrough] <- exclusion-slots=1 [only-enp3s0f0-passthrough]
  device enp3s0f0v0 dra.networking/bandwidth=12500 <- bandwidth=12500 exclusion-slots=0 [shared] <- v0-lock=1
  device enp3s0f0v0-b dra.networking/bandwidth=12500 <- bandwidth=12500 exclusion-slots=0 [shared] <- v0-lock=1
  device enp3s0f0v1 dra.networking/bandwidth=12500 <- bandwidth=12500 exclusion-slots=0 [shared] <- v1-lock=1
  device enp3s0f0v1-b dra.networking/bandwidth=12500 <- bandwidth=12500 exclusion-slots=0 [shared] <- v1-lock=1
`},
		"two exclusion groups that nothing takes as a whole": {nics(), []string{macvlanPolicy, other(ipvlanPolicy)}, `
pool worker-1/eth1
  set eth1-counters: exclusion-slots=1
  set eth1-group-rx-handler: exclusion-slots=1
  set eth1-group-tc: exclusion-slots=1
  slice of 2
  device eth1-ipvlan shared dra.networking/ipvlans=4/1 <- exclusion-slots=0 [only-eth1-ipvlan]
  device eth1-macvlan shared dra.networking/macvlans=4/1 <- exclusion-slots=0 [only-eth1-macvlan]
`},
		"more than groups can say": {nics(), []string{macvlanPolicy, other(ipvlanPolicy), passthroughPolicy}, `
pool worker-1/eth1
  set eth1-counters: ipvlans-capacity=4 macvlans-capacity=4
  slice of 3
  device eth1-ipvlan shared dra.networking/ipvlans=4/1 <- ipvlans-capacity=4
  device eth1-macvlan shared dra.networking/macvlans=4/1 <- macvlans-capacity=4
  device eth1-passthrough <- ipvlans-capacity=4 macvlans-capacity=4
remark device eth1: counters instead of compatibility groups separate its entries: an exclusive entry would have to consume from 3 counter sets, ` +
			`one and one for each exclusion group (["rx-handler" "tc"]), and the limit is 2: use one exclusion group, or no exclusive plugins
`},
		"a physical function that could have virtual functions, next to which its groups stay": {pf("enp3s0f0", 0),
			[]string{macvlanPolicy}, `
pool worker-1/enp3s0f0
  set enp3s0f0-counters: exclusion-slots=1
  set enp3s0f0-group-rx-handler: exclusion-slots=1
  slice of 1
  device enp3s0f0-macvlan shared dra.networking/macvlans=4/1 <- exclusion-slots=0 [only-enp3s0f0-macvlan]
`},
		"nothing to keep apart": {nics(), []string{macvlanPolicy}, `
pool worker-1/eth1
  slice of 1
  device eth1-macvlan shared dra.networking/macvlans=4/1
`},
	} {
		t.Run(name, func(t *testing.T) {
			groups := features()
			groups.CompatibilityGroups = true
			check(t, buildWith(t, groups, test.devices, test.policies...), test.want)
		})
	}
}

// Whatever its device is called, an exclusive entry never belongs to the group of entries that may be in use at the
// same time.
func TestGroupsOfAnyName(t *testing.T) {
	groups := features()
	groups.CompatibilityGroups = true
	for _, name := range []string{"shared", "only-shared", "Shared", strings.Repeat("x", 15)} {
		devices := pf(name, 2)
		taken := strings.Replace(passthroughPolicy, `"-passthrough"`, `""`, 1)
		s := newScheduler(t, buildWith(t, groups, devices, taken, vf(vfExclusive)))
		if devices, _ := s.cycle(s.claim("sriov")); len(devices) != 1 {
			t.Errorf("%s: no virtual function was allocated", name)
		}
		if devices, _ := s.cycle(s.claim("host-device")); len(devices) != 0 {
			t.Errorf("%s: %v was allocated while a virtual function was in use", name, devices)
		}
	}
}

// A device can have many exclusion groups, each with its own counter set.
func TestManyExclusionGroups(t *testing.T) {
	groups := features()
	groups.CompatibilityGroups = true
	var specs []string
	for i := range 20 {
		spec := strings.Replace(macvlanPolicy, "rx-handler", fmt.Sprintf("g%d", i/2), 1)
		specs = append(specs, strings.Replace(spec, `"-macvlan"`, fmt.Sprintf(`"-m%02d"`, i), 1))
	}
	s := newScheduler(t, buildWith(t, groups, nics(), specs...))
	for i := range 100 {
		devices, _ := s.cycle(s.claim("macvlan"))
		// Only one member of each of the 10 groups can be in use at a time, and each member has 4 shares.
		if got := len(devices) == 1; got != (i < 40) {
			t.Fatalf("claim %d got %v, want the first 40 claims to fit and no others", i+1, devices)
		}
	}
}
