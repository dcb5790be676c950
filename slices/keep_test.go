package slices_test

import (
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// withHeld returns the features with some entries from a result marked as held.
func withHeld(t *testing.T, features draslices.Features, result draslices.Result, names ...string) draslices.Features {
	t.Helper()
	features.Held = map[draslices.EntryID]draslices.Holding{}
	for _, e := range result.Entries {
		for _, name := range names {
			if e.Name == name {
				features.Held[draslices.EntryID{Pool: e.Pool, Name: e.Name}] = heldAs(e)
			}
		}
	}
	if len(features.Held) != len(names) {
		t.Fatalf("%v must be published, but the result contains only %v of these", names, features.Held)
	}
	return features
}

// heldAs returns the driver's record of an allocated entry.
func heldAs(e draslices.Entry) draslices.Holding {
	return draslices.Holding{Device: e.Device.Name, Bandwidth: e.Bandwidth, Persona: &e.Persona}
}

// If a policy is deleted or edited while a claim holds a device, the scheduler must not be able to allocate the device
// twice. Changes to devices that stay shared must take effect even though these devices are always in use.
func TestPoliciesChangeUnderClaims(t *testing.T) {
	tiered := strings.Replace(vfPolicy, "exposure:", `exposure:
  capacity: {bandwidth: {value: "25000", requestPolicy: {default: "5000", validValues: ["5000", "10000"]}}}`, 1)
	exclusive := strings.Replace(passthroughPolicy, `"-passthrough"`, `"-macvlan"`, 1)
	for _, test := range []struct {
		name           string
		devices        []discovery.Device
		before, after  []string
		claim, held    string // the plugin in the claim, and the entry that it gets
		refused        string // the plugin in a claim that has to wait
		withdrawn      bool
		want, released string // the names published while the entry is held and afterwards
	}{
		{
			name: "the policy of a shared entry is deleted", devices: nics(),
			before: []string{macvlanPolicy, passthroughPolicy}, after: []string{passthroughPolicy},
			claim: "macvlan", held: "eth1-macvlan", refused: "host-device", withdrawn: true,
			want: "eth1-passthrough eth1-macvlan", released: "eth1-passthrough",
		},
		{
			name: "the policy of an exclusive entry is deleted", devices: nics(),
			before: []string{macvlanPolicy, passthroughPolicy}, after: []string{macvlanPolicy},
			claim: "host-device", held: "eth1-passthrough", refused: "macvlan", withdrawn: true,
			want: "eth1-macvlan eth1-passthrough", released: "eth1-macvlan",
		},
		{
			name: "all policies are deleted", devices: pf("enp3s0f0", 1), before: []string{vfPolicy}, after: nil,
			claim: "sriov", held: "enp3s0f0v0", refused: "sriov", withdrawn: true, want: "enp3s0f0v0",
		},
		{
			name: "a shared entry becomes exclusive", devices: nics(),
			before: []string{macvlanPolicy}, after: []string{exclusive},
			claim: "macvlan", held: "eth1-macvlan", refused: "host-device", withdrawn: true,
			want: "eth1-macvlan", released: "eth1-macvlan",
		},
		{
			name: "an exclusive entry becomes shared", devices: nics(),
			before: []string{exclusive}, after: []string{macvlanPolicy},
			claim: "host-device", held: "eth1-macvlan", refused: "macvlan", withdrawn: true,
			want: "eth1-macvlan", released: "eth1-macvlan",
		},
		{
			name: "the NIC is offered as a whole beside its function", devices: pf("enp3s0f0", 1),
			before: []string{vfPolicy}, after: []string{vfPolicy, passthroughPolicy},
			claim: "sriov", held: "enp3s0f0v0", refused: "host-device",
			want: "enp3s0f0-passthrough enp3s0f0v0", released: "enp3s0f0-passthrough enp3s0f0v0",
		},
		{
			name: "the NIC is no longer offered as a whole", devices: pf("enp3s0f0", 1),
			before: []string{vfPolicy, passthroughPolicy}, after: []string{vfPolicy},
			claim: "host-device", held: "enp3s0f0-passthrough", refused: "sriov", withdrawn: true,
			want: "enp3s0f0-passthrough enp3s0f0v0", released: "enp3s0f0v0",
		},
		{
			name: "tiers are taken away", devices: pf("enp3s0f0", 1), before: []string{tiered},
			after: []string{vfPolicy},
			claim: "sriov", held: "enp3s0f0v0-bw5000", refused: "sriov", withdrawn: true,
			want: "enp3s0f0v0 enp3s0f0v0-bw5000", released: "enp3s0f0v0",
		},
		{
			name: "a shared entry has another capacity", devices: nics(),
			before: []string{macvlanPolicy},
			after:  []string{strings.ReplaceAll(macvlanPolicy, `value: "4"`, `value: "8"`)},
			claim:  "macvlan", held: "eth1-macvlan", withdrawn: false,
			want: "eth1-macvlan", released: "eth1-macvlan",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := build(t, test.devices, test.before...)
			s := newScheduler(t, before)
			devices, claims := s.cycle(s.claim(test.claim))
			if len(devices) != 1 || devices[0] != test.held {
				t.Fatalf("allocated %v, want only the held device", devices)
			}
			after := buildWith(t, withHeld(t, features(), before, test.held), test.devices, test.after...)
			if got := published(after); got != test.want {
				t.Errorf("published %q, want %q", got, test.want)
			}
			for _, e := range after.Entries {
				if e.Withdrawn != (test.withdrawn && e.Name == test.held) {
					t.Errorf("unexpected state of %s: withdrawn = %t", e.Name, e.Withdrawn)
				}
				if _, named := e.Spec.Attributes[policy.ExposurePolicy]; named == e.Withdrawn {
					t.Errorf("unexpected state of %s: withdrawn = %t, names a policy: %t", e.Name, e.Withdrawn,
						named)
				}
			}
			checkRefused(t, s, after, test.refused)
			released := build(t, test.devices, test.after...)
			if got := published(released); got != test.released {
				t.Errorf("after the release, published %q, want %q", got, test.released)
			}
			s = newScheduler(t, released)
			s.release(claims...)
			if test.refused != "" && test.released != "" {
				if devices, _ := s.cycle(s.claim(test.refused)); len(devices) == 0 {
					t.Errorf("%s was rejected after the release", test.refused)
				}
			}
		})
	}
}

// checkRefused checks that a claim has to wait even if taints are ignored.
func checkRefused(t *testing.T, held *scheduler, result draslices.Result, plugin string) {
	t.Helper()
	s := newScheduler(t, result)
	s.claims = held.claims
	if plugin == "" {
		return
	}
	if devices, _ := s.cycle(s.claim(plugin)); len(devices) > 0 {
		t.Errorf("%s got %v although the device is held", plugin, devices)
	}
}

// A held device is attributed to the policy that offers it now, not to the policy at the time of the allocation.
func TestHeldDeviceNamesThePolicyOfToday(t *testing.T) {
	before := build(t, nics(), passthroughPolicy)
	held := before.Entries[0].Name
	after := buildWith(t, withHeld(t, features(), before, held), nics(), macvlanPolicy, passthroughPolicy)
	for _, e := range after.Entries {
		by := e.Spec.Attributes[policy.ExposurePolicy].StringValue
		if e.Name == held && (e.Withdrawn || by == nil || *by != "policy-1") {
			t.Errorf("%s: withdrawn = %t, policy = %v", e.Name, e.Withdrawn, by)
		}
	}
}

func published(result draslices.Result) string {
	all := make([]string, len(result.Entries))
	for i, e := range result.Entries {
		all[i] = e.Name
	}
	return strings.Join(all, " ")
}

// Taints are published in slices, and keep the tainted entries from being allocated.
func TestTaintedDevicesAreNotGiven(t *testing.T) {
	plain := build(t, pf("enp3s0f0", 2), vfPolicy)
	tainted := plain.Tainted(func(e draslices.Entry) []resourceapi.DeviceTaint {
		if e.Name != "enp3s0f0v0" {
			return nil
		}
		return []resourceapi.DeviceTaint{{Key: "dra.networking/unavailable", Value: "gone",
			Effect: resourceapi.DeviceTaintEffectNoSchedule}}
	})
	checkValid(t, tainted)
	s := newScheduler(t, tainted)
	if devices, _ := s.cycle(s.claim("sriov")); len(devices) != 1 || devices[0] != "enp3s0f0v1" {
		t.Errorf("allocated %v, want enp3s0f0v1", devices)
	}
	if devices, _ := s.cycle(s.claim("sriov")); len(devices) != 0 {
		t.Errorf("allocated %v, want nothing", devices)
	}
	if len(plain.Entries[0].Spec.Taints) != 0 {
		t.Error("the receiver was modified")
	}
}

// Entries are not published if the cluster cannot enforce their exclusions.
func TestWhatTheClusterLacks(t *testing.T) {
	devices := append(pf("enp3s0f0", 1), bridge("br-data"))
	full := build(t, devices, macvlanPolicy, passthroughPolicy, vfPolicy, bridgePolicy)
	tiers := build(t, pf("enp3s0f0", 2), macvlanPolicy, vf(vfTiers)) // only virtual functions consume counters
	for _, test := range []struct {
		name     string
		full     draslices.Result
		missing  draslices.MissingFeatures
		want     string
		problems int
	}{
		{"nothing", full, draslices.MissingFeatures{}, "br-data enp3s0f0-macvlan enp3s0f0-passthrough enp3s0f0v0", 0},
		{"counters", full, draslices.MissingFeatures{Counters: true}, "br-data", 3},
		{"sharing", full, draslices.MissingFeatures{Sharing: true}, "enp3s0f0-passthrough enp3s0f0v0", 2},
		{"charging", full, draslices.MissingFeatures{Charging: true}, "br-data enp3s0f0-passthrough enp3s0f0v0", 1},
		{"all", full, draslices.MissingFeatures{Counters: true, Sharing: true, Charging: true, Taints: true}, "", 4},
		{"counters of some", tiers, draslices.MissingFeatures{Counters: true}, "enp3s0f0-macvlan", 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			result := test.full.Without(test.missing)
			checkValid(t, result)
			if got := published(result); got != test.want {
				t.Errorf("published %q, want %q", got, test.want)
			}
			if len(result.Problems) != test.problems {
				t.Errorf("wrong number of problems: %v", result.Problems)
			}
			for name, pool := range result.Resources.Pools {
				if len(pool.Slices) == 0 || len(pool.Slices[len(pool.Slices)-1].Devices) == 0 {
					t.Errorf("pool %s has no devices", name)
				}
				if test.missing.Counters && len(pool.Slices[0].SharedCounters) > 0 {
					t.Errorf("pool %s has counters, which the API server drops", name)
				}
			}
		})
	}
}

// If two shared entries are both held when a policy edit puts them into the same exclusion group, no counter may become
// negative, because a negative counter would block the whole pool.
func TestGroupsAreMadeUnderClaims(t *testing.T) {
	grouped := []string{macvlanPolicy, ipvlanPolicy}
	var separate []string
	for _, spec := range grouped {
		separate = append(separate, strings.Replace(spec, "  exclusionGroup: rx-handler", "", 1))
	}
	before := build(t, nics(), separate...)
	held := withHeld(t, features(), before, "eth1-macvlan", "eth1-ipvlan")
	checkHeld(t, buildWith(t, held, nics(), grouped...), held.Held)
}

// Policies that need too many counters must not cause allocated entries of the NIC or of a virtual function to be
// freed.
func TestTooManyCountersUnderClaims(t *testing.T) {
	many := func(kind, suffix string) string {
		var counters strings.Builder
		for i := range 9 {
			fmt.Fprintf(&counters, "c%d%s: {value: \"4\", requestPolicy: {default: \"1\"}}, ", i, suffix)
		}
		return fmt.Sprintf(`
selector: {cel: 'device.attributes["dra.networking"].type == "%s"'}
exposure:
  deviceNameSuffix: "-%s"
  allowMultipleAllocations: true
  supportedCNIPlugins: [{name: macvlan}]
  capacity: {%s}`, kind, suffix, strings.TrimSuffix(counters.String(), ", "))
	}
	for kind, test := range map[string]struct{ held, policy string }{
		"pf": {"enp3s0f0-passthrough", passthroughPolicy}, "vf": {"enp3s0f0v0", vfPolicy},
	} {
		before := build(t, pf("enp3s0f0", 1), test.policy)
		held := withHeld(t, features(), before, test.held)
		after := buildWith(t, held, pf("enp3s0f0", 1), test.policy, many(kind, "w"), many(kind, "x"), many(kind, "y"),
			many(kind, "z"))
		if got := published(after); got != test.held || len(after.Problems) == 0 {
			t.Errorf("%s: published %s, problems %v; want the held entries and a problem", kind, got, after.Problems)
		}
	}
}
