package claims

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/journal"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
)

// storeFixture is an empty store with its own journal.
type storeFixture struct {
	*testing.T
	claims *Store
}

func newStoreFixture(t *testing.T) *storeFixture {
	t.Helper()
	f := &storeFixture{T: t}
	opened, err := journal.Open(filepath.Join(t.TempDir(), "journal.db"), clocktesting.NewFakeClock(time.Unix(1000, 0)))
	f.must(err)
	t.Cleanup(func() { f.must(opened.Close()) })
	f.claims, _, err = Load(opened.DB)
	f.must(err)
	return f
}

func (f *storeFixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// unchanged leaves a record unchanged.
func unchanged(*Record) error { return nil }

// ways returns the possible ways to hold a physical function, its two virtual functions, or a second NIC.
func ways() map[string]HeldDevice {
	pf := discovery.Device{Name: "pf0", Type: discovery.TypePF, PCIAddress: "0000:01:00.0"}
	vf := func(index int) discovery.Device {
		return discovery.Device{Name: discovery.IfName(fmt.Sprintf("pf0v%d", index)), Type: discovery.TypeVF,
			VFIndex:    index,
			PCIAddress: discovery.PCIAddress(fmt.Sprintf("0000:01:00.%d", index+1)), PFAddress: pf.PCIAddress,
			PFName: pf.Name}
	}
	held := func(facts discovery.Device, suffix, group string, exclusive bool) HeldDevice {
		return HeldDevice{Request: "r", Pool: "n/pf0", Name: string(facts.Name) + suffix, Exclusive: exclusive,
			Facts:   facts,
			Persona: &policy.Persona{Suffix: suffix, Exclusive: exclusive, ExclusionGroup: group}}
	}
	return map[string]HeldDevice{
		"macvlan":     held(pf, "-macvlan", "rx-handler", false),
		"ipvlan":      held(pf, "-ipvlan", "rx-handler", false),
		"tap":         held(pf, "-tap", "", false),
		"passthrough": held(pf, "", "", true),
		"vf0":         held(vf(0), "", "", true),
		"vf0-dpdk":    held(vf(0), "-dpdk", "", true),
		"vf1":         held(vf(1), "", "", true),
		"other":       held(discovery.Device{Name: "eth7", PCIAddress: "0000:09:00.0"}, "", "", true),
	}
}

// Mutually exclusive devices are never held at the same time, whether by two claims (in either order) or by a single
// claim, even if the scheduler allocates them.
func TestConflictingDevicesAreRefused(t *testing.T) {
	together := map[string]bool{ // all compatible pairs, in alphabetical order
		"ipvlan ipvlan": true, "macvlan macvlan": true, "tap tap": true,
		"ipvlan tap": true, "macvlan tap": true,
		"ipvlan vf0": true, "ipvlan vf0-dpdk": true, "ipvlan vf1": true,
		"macvlan vf0": true, "macvlan vf0-dpdk": true, "macvlan vf1": true,
		"tap vf0": true, "tap vf0-dpdk": true, "tap vf1": true,
		"vf0 vf1": true, "vf0-dpdk vf1": true,
	}
	all := ways()
	for first, held := range all {
		for second, wanted := range all {
			pair := min(first, second) + " " + max(first, second)
			allowed := together[pair] || first != second && (first == "other" || second == "other")
			t.Run(first+" then "+second, func(t *testing.T) {
				f := newStoreFixture(t)
				left := Record{Claim: cnichain.Claim{Namespace: "ns", Name: "one", UID: "one"},
					Devices: []HeldDevice{held}}
				two := Record{Claim: cnichain.Claim{Namespace: "ns", Name: "two", UID: "two"},
					Devices: []HeldDevice{wanted}}
				f.must(f.claims.Hold(left, unchanged))
				err := f.claims.Hold(two, unchanged)
				if allowed != (err == nil) {
					t.Errorf("wrong result: error = %v", err)
				}
				if !allowed && !strings.Contains(err.Error(), "while claim ns/one") {
					t.Errorf("the error does not name the holder: %v", err)
				}
				f.must(f.claims.Release("one"))
				f.must(f.claims.Hold(two, unchanged))
				f.must(f.claims.Release("two"))
				both := Record{Claim: left.Claim, Devices: []HeldDevice{held, wanted}}
				if err := f.claims.Hold(both, unchanged); allowed != (err == nil) {
					t.Errorf("wrong result for one claim: error = %v", err)
				}
			})
		}
	}
}

// If the schemas of two plugins declare that the plugins cannot share a device, the plugins never run on one device at
// the same time, even if one policy allows both.
func TestPluginsThatCannotShareADevice(t *testing.T) {
	step := func(cniType, address string, conflicts ...string) cnichain.Plan {
		return cnichain.Plan{Steps: []cnichain.PlanStep{{Name: "link-" + cniType, Type: cniType,
			ConflictsWith: conflicts,
			Device:        &cnichain.Device{Name: "pf0", PCIAddress: address}}, {Name: "knob", Type: "tuning"}}}
	}
	const here, elsewhere = "0000:01:00.0", "0000:01:00.1"
	for _, test := range []struct {
		name        string
		held, asked cnichain.Plan
		refused     bool
	}{
		{"the holder says so", step("macvlan", here, "ipvlan"), step("ipvlan", here), true},
		{"the newcomer says so", step("ipvlan", here), step("macvlan", here, "ipvlan"), true},
		{"another device", step("macvlan", here, "ipvlan"), step("ipvlan", elsewhere), false},
		{"the same plugin", step("macvlan", here, "ipvlan"), step("macvlan", here, "ipvlan"), false},
		{"neither says so", step("macvlan", here), step("ipvlan", here), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newStoreFixture(t)
			left := Record{Claim: cnichain.Claim{Namespace: "ns", Name: "one", UID: "one"},
				Plans: []cnichain.Plan{test.held}}
			two := Record{Claim: cnichain.Claim{Namespace: "ns", Name: "two", UID: "two"},
				Plans: []cnichain.Plan{test.asked}}
			f.must(f.claims.Hold(left, unchanged))
			err := f.claims.Hold(two, unchanged)
			if test.refused != (err != nil) || err != nil &&
				!strings.Contains(err.Error(), "claim ns/one runs "+test.held.Steps[0].Type) {
				t.Errorf("wrong result: error = %v", err)
			}
			f.must(f.claims.Release("one"))
			f.must(f.claims.Hold(two, unchanged))
			f.must(f.claims.Release("two"))
			// A step does not clash with itself.
			alone := Record{Claim: left.Claim, Plans: []cnichain.Plan{step("jealous", here, "jealous")}}
			f.must(f.claims.Hold(alone, unchanged))
			f.must(f.claims.Release("one"))
			both := Record{Claim: left.Claim, Plans: []cnichain.Plan{test.held, test.asked}}
			if err := f.claims.Hold(both, unchanged); test.refused != (err != nil) {
				t.Errorf("wrong result for one claim: error = %v", err)
			}
		})
	}
}

// Regardless of the devices' names, a link is never held twice, and it is never held while a link on top of it is in
// another pod.
func TestLinksAreNotTakenTwice(t *testing.T) {
	const boot = "boot-1"
	baseline := func(index int, kind string, below *cnichain.LowerLink) cnichain.Baseline {
		return cnichain.Baseline{BootID: boot, Index: index, Kind: kind, StandsOn: below}
	}
	eth0 := cnichain.Device{Pool: "n/eth0", Name: "eth0", Exclusive: true, Baseline: baseline(3, "device", nil)}
	vlan := cnichain.Device{Pool: "n/eth0.7", Name: "eth0.7", Exclusive: true,
		Baseline: baseline(9, "vlan", &cnichain.LowerLink{Index: 3})}
	changed := func(device cnichain.Device, change func(*cnichain.Device)) cnichain.Device {
		change(&device)
		return device
	}
	share := changed(eth0, func(d *cnichain.Device) { d.Exclusive, d.Name = false, "eth0-macvlan" })
	renamed := changed(eth0, func(d *cnichain.Device) { d.Pool, d.Name = "n/lan0", "lan0" })
	for name, test := range map[string]struct {
		first, second cnichain.Device
		refused       string
	}{
		"a VLAN and its parent":                  {vlan, eth0, "eth0.7 is on top of eth0"},
		"a VLAN and its parent, which is shared": {first: vlan, second: share},
		"a VLAN of a function, and the NIC": {
			changed(vlan, func(d *cnichain.Device) { d.StandsOn = &cnichain.LowerLink{Index: 7, PF: "0000:01:00.0"} }),
			changed(eth0, func(d *cnichain.Device) { d.PCIAddress = "0000:01:00.0" }), "eth0.7 is on top of eth0"},
		"a VLAN of another link":  {first: vlan, second: changed(eth0, func(d *cnichain.Device) { d.Index = 4 })},
		"a link that was renamed": {share, renamed, "renamed"},
		"a link of another boot": {first: share,
			second: changed(renamed, func(d *cnichain.Device) { d.BootID = "boot-2" })},
		"a link that has the index of one in a pod": {first: eth0,
			second: changed(renamed, func(d *cnichain.Device) { d.MAC = "02:00:00:00:00:01" })},
		"without a baseline": {first: share,
			second: changed(renamed, func(d *cnichain.Device) { d.Baseline = cnichain.Baseline{} })},
	} {
		for _, order := range [][]cnichain.Device{{test.first, test.second}, {test.second, test.first}} {
			t.Run(name+", "+order[0].Name+" first", func(t *testing.T) {
				f := newStoreFixture(t)
				left := Record{Claim: cnichain.Claim{Namespace: "ns", Name: "left", UID: "left"}}
				right := Record{Claim: cnichain.Claim{Namespace: "ns", Name: "right", UID: "right"}}
				gets := func(device cnichain.Device) func(*Record) error {
					return func(record *Record) error {
						record.Plans = []cnichain.Plan{{Steps: []cnichain.PlanStep{{Device: &device}}}}
						return nil
					}
				}
				check := func(err error) {
					t.Helper()
					if (err != nil) != (test.refused != "") ||
						err != nil && !strings.Contains(err.Error(), test.refused) {
						t.Errorf("error = %v, want %q", err, test.refused)
					}
				}
				f.must(f.claims.Hold(left, gets(order[0])))
				check(f.claims.Hold(right, gets(order[1])))
				f.must(f.claims.Release("right"))
				f.must(f.claims.Release("left"))
				check(f.claims.Hold(left, func(record *Record) error { // both concurrently
					f.must(f.claims.Hold(right, gets(order[1])))
					return gets(order[0])(record)
				}))
			})
		}
	}
}

// If another claim does not release a link that is on top of a waiting claim's link, the waiting claim is retried a few
// times, but not continuously.
func TestClaimsThatWaitForLinksDoNotSpin(t *testing.T) {
	f := newStoreFixture(t)
	baseline := cnichain.Baseline{BootID: "boot", Index: 9, StandsOn: &cnichain.LowerLink{Index: 3}}
	gets := func(device cnichain.Device, count *atomic.Int32) func(*Record) error {
		return func(record *Record) error {
			if count.Add(1) > 10 {
				return errors.New("it spins")
			}
			record.Plans = []cnichain.Plan{{Steps: []cnichain.PlanStep{{Device: &device}}}}
			return nil
		}
	}
	var tries atomic.Int32
	holder := Record{Claim: cnichain.Claim{Namespace: "ns", Name: "holder", UID: "holder"}}
	f.must(f.claims.Hold(holder, gets(cnichain.Device{Name: "eth0.7", Baseline: baseline}, new(atomic.Int32))))
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	ended := make(chan error, 1)
	go func() {
		ended <- f.claims.HoldWhenFree(t.Context(), clock,
			Record{Claim: cnichain.Claim{Namespace: "ns", Name: "waiter", UID: "waiter"}},
			Rivals{IsLeaving: func(*Record) bool { return false }, Evict: func(*Record) {}},
			gets(cnichain.Device{Name: "eth0", Exclusive: true, Baseline: cnichain.Baseline{BootID: "boot", Index: 3}},
				&tries))
	}()
	for tries.Load() < 2 || !clock.HasWaiters() {
		runtime.Gosched()
	}
	clock.Step(NoticeWait)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "eth0.7 is on top of eth0") {
		t.Errorf("error = %v, want \"eth0.7 is on top of eth0\"", err)
	}
	if n := tries.Load(); n != 2 {
		t.Errorf("got %d attempts, want 2", n)
	}
}

// Claims can never hold more of a shared device than its capacity, and no claim can hold less than the minimum in the
// device's policy.
func TestCapacityIsCheckedAgain(t *testing.T) {
	f := newStoreFixture(t)
	share := func(name string, amounts ...string) Record {
		held := ways()["macvlan"]
		held.Persona.Capacity = []policy.Capacity{{Name: "macvlans", Value: resource.MustParse("4")}}
		held.Persona.ConsumePerAllocation = map[string]resource.Quantity{"macvlans": resource.MustParse("1")}
		record := Record{Claim: cnichain.Claim{Namespace: "ns", Name: name, UID: name}}
		for _, amount := range amounts {
			left := held
			left.Consumed = map[resourceapi.QualifiedName]resource.Quantity{
				"dra.networking/macvlans": resource.MustParse(amount),
			}
			record.Devices = append(record.Devices, left)
		}
		return record
	}
	for _, test := range []struct {
		name    string
		amounts []string
		want    string
	}{
		{"a", []string{"2"}, ""},
		{"b", []string{"3"}, "would be in use"},
		{"c", []string{"0"}, "policy"},
		{"d", []string{"1", "2"}, "would be in use"},
		{"e", []string{"1", "1"}, ""},
		{"f", []string{"1"}, "would be in use"},
		{"a", []string{"2"}, ""}, // again
	} {
		err := f.claims.Hold(share(test.name, test.amounts...), unchanged)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s takes %v: error = %v, want %q", test.name, test.amounts, err, test.want)
		}
	}
	var second error
	f.must(f.claims.Release("a"))
	f.must(f.claims.Hold(share("a", "2"), func(*Record) error { // both concurrently
		second = f.claims.Hold(share("g", "1"), unchanged)
		return nil
	}))
	if second == nil || !strings.Contains(second.Error(), "would be in use") {
		t.Errorf("error = %v for a claim concurrent with another one, want \"would be in use\"", second)
	}
	// Capacity that a claim gets after waiting is counted only once.
	for _, uid := range []string{"a", "e"} {
		f.must(f.claims.Release(uid))
	}
	defer f.claims.enqueue(share("h", "2"))()
	f.must(f.claims.Hold(share("h", "2"), func(*Record) error {
		return f.claims.Hold(share("i", "2"), unchanged)
	}))
	if err := f.claims.Hold(share("k", "1"), unchanged); err == nil {
		t.Error("the claims exceed the capacity, want an error")
	}
}
