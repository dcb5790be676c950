package slices_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
	"github.com/dra-networking/dra-network-driver/policy"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// vf returns a policy for virtual functions.
func vf(exposure string) string {
	return "selector: {cel: 'device.attributes[\"dra.networking\"].type == \"vf\"'}\nexposure: " + exposure
}

// slow returns a physical function with an unknown speed and n virtual functions.
func slow(n int) []discovery.Device {
	devices := pf("enp3s0f0", n)
	devices[0].LinkSpeed = 0
	return devices
}

const (
	vfExclusive = `{supportedCNIPlugins: [{name: sriov, exclusive: true}]}`
	vfSpare     = `{deviceNameSuffix: "-b", supportedCNIPlugins: [{name: host-device, exclusive: true}]}`
	vfMacvlan   = `{deviceNameSuffix: "-m", allowMultipleAllocations: true, capacity: {macvlans: {value: "4", ` +
		`requestPolicy: {default: "1"}}}, supportedCNIPlugins: [{name: macvlan}]}`
	vfIpvlan = `{deviceNameSuffix: "-i", allowMultipleAllocations: true, capacity: {ipvlans: {value: "4", ` +
		`requestPolicy: {default: "1"}}}, supportedCNIPlugins: [{name: ipvlan}]}`
	vfTiers = `{supportedCNIPlugins: [{name: sriov, exclusive: true}], capacity: {bandwidth: {value: "25000", ` +
		`requestPolicy: {default: "5000", validValues: ["5000", "10000"]}}}}`
)

func TestEntriesOfVirtualFunctions(t *testing.T) {
	for name, test := range map[string]struct {
		policies []string
		want     string
	}{
		"exclusive ones lock their function": {[]string{passthroughPolicy, vf(vfExclusive), vf(vfSpare)}, `
pool worker-1/enp3s0f0
  set enp3s0f0-counters: exclusion-slots=3
  set enp3s0f0-vfs-0: v0-lock=1 v1-lock=1
  slice of 5
  device enp3s0f0-passthrough <- exclusion-slots=3
  device enp3s0f0v0 <- exclusion-slots=1 <- v0-lock=1
  device enp3s0f0v0-b <- exclusion-slots=1 <- v0-lock=1
  device enp3s0f0v1 <- exclusion-slots=1 <- v1-lock=1
  device enp3s0f0v1-b <- exclusion-slots=1 <- v1-lock=1
`},
		"shared ones are held concurrently, so they have a slot each": {
			[]string{passthroughPolicy, vf(vfMacvlan), vf(vfIpvlan)}, `
pool worker-1/enp3s0f0
  set enp3s0f0-counters: exclusion-slots=5
  slice of 5
  device enp3s0f0-passthrough <- exclusion-slots=5
  device enp3s0f0v0-i shared dra.networking/ipvlans=4/1 <- exclusion-slots=1
  device enp3s0f0v0-m shared dra.networking/macvlans=4/1 <- exclusion-slots=1
  device enp3s0f0v1-i shared dra.networking/ipvlans=4/1 <- exclusion-slots=1
  device enp3s0f0v1-m shared dra.networking/macvlans=4/1 <- exclusion-slots=1
`},
		"entries of a group have none": {[]string{passthroughPolicy,
			vf(strings.Replace(vfMacvlan, "{", "{exclusionGroup: x, ", 1)),
			vf(strings.Replace(vfIpvlan, "{", "{exclusionGroup: x, ", 1)), vf(vfExclusive)}, `
pool worker-1/enp3s0f0
  set enp3s0f0-counters: exclusion-slots=3
  set enp3s0f0-vfs-0: v0-ipvlans-capacity=4 v0-macvlans-capacity=4 v1-ipvlans-capacity=4 v1-macvlans-capacity=4
  slice of 7
  device enp3s0f0-passthrough <- exclusion-slots=3
  device enp3s0f0v0-i shared dra.networking/ipvlans=4/1 <- exclusion-slots=1 <- v0-ipvlans-capacity=4 v0-macvlans-capacity=4
  device enp3s0f0v0-m shared dra.networking/macvlans=4/1 <- exclusion-slots=1 <- v0-ipvlans-capacity=4 v0-macvlans-capacity=4
  device enp3s0f0v0 <- exclusion-slots=1 <- v0-ipvlans-capacity=4 v0-macvlans-capacity=4
  device enp3s0f0v1-i shared dra.networking/ipvlans=4/1 <- exclusion-slots=1 <- v1-ipvlans-capacity=4 v1-macvlans-capacity=4
  device enp3s0f0v1-m shared dra.networking/macvlans=4/1 <- exclusion-slots=1 <- v1-ipvlans-capacity=4 v1-macvlans-capacity=4
  device enp3s0f0v1 <- exclusion-slots=1 <- v1-ipvlans-capacity=4 v1-macvlans-capacity=4
`},
		"a single one needs nothing of its own": {[]string{passthroughPolicy, vf(vfMacvlan)}, `
pool worker-1/enp3s0f0
  set enp3s0f0-counters: exclusion-slots=3
  slice of 3
  device enp3s0f0-passthrough <- exclusion-slots=3
  device enp3s0f0v0-m shared dra.networking/macvlans=4/1 <- exclusion-slots=1
  device enp3s0f0v1-m shared dra.networking/macvlans=4/1 <- exclusion-slots=1
`},
		"where nothing excludes them they take nothing": {[]string{vf(vfMacvlan), vf(vfIpvlan)}, `
pool worker-1/enp3s0f0
  slice of 4
  device enp3s0f0v0-i shared dra.networking/ipvlans=4/1
  device enp3s0f0v0-m shared dra.networking/macvlans=4/1
  device enp3s0f0v1-i shared dra.networking/ipvlans=4/1
  device enp3s0f0v1-m shared dra.networking/macvlans=4/1
`},
		"without an exclusive entry of the NIC they exclude only each other": {[]string{vf(vfExclusive), vf(vfSpare)}, `
pool worker-1/enp3s0f0
  set enp3s0f0-vfs-0: v0-lock=1 v1-lock=1
  slice of 4
  device enp3s0f0v0 <- v0-lock=1
  device enp3s0f0v0-b <- v0-lock=1
  device enp3s0f0v1 <- v1-lock=1
  device enp3s0f0v1-b <- v1-lock=1
`},
	} {
		t.Run(name, func(t *testing.T) { check(t, build(t, slow(2), test.policies...), test.want) })
	}
}

// Counters that are local to virtual functions are distributed across sets, and the sets across slices, without
// splitting the counters of any function.
func TestBlocksOfVirtualFunctions(t *testing.T) {
	result := build(t, slow(110), passthroughPolicy, vf(vfExclusive), vf(vfSpare), vf(vfMacvlan), vf(vfIpvlan))
	var got []string
	for _, slice := range result.Resources.Pools["worker-1/enp3s0f0"].Slices {
		for _, set := range slice.SharedCounters {
			got = append(got, fmt.Sprintf("%s:%d", set.Name, len(set.Counters)))
		}
		if len(slice.SharedCounters) > 0 {
			got = append(got, "|")
		}
	}
	// Each function has 3 counters, so a set has room for 10 functions.
	want := "enp3s0f0-counters:1 enp3s0f0-vfs-0:30 enp3s0f0-vfs-1:30 enp3s0f0-vfs-2:30 enp3s0f0-vfs-3:30 " +
		"enp3s0f0-vfs-4:30 enp3s0f0-vfs-5:30 enp3s0f0-vfs-6:30 | " +
		"enp3s0f0-vfs-7:30 enp3s0f0-vfs-8:30 enp3s0f0-vfs-9:30 enp3s0f0-vfs-10:30 |"
	if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
		t.Errorf("counter sets (-want +got):\n%s", diff)
	}
}

func TestVirtualFunctionWithTooManyCounters(t *testing.T) {
	var specs []string
	for i := range 3 {
		var capacity []string
		for j := range 11 {
			capacity = append(capacity, fmt.Sprintf(`c%d: {value: "4", requestPolicy: {default: "1"}}`, j))
		}
		specs = append(specs,
			vf(
				fmt.Sprintf(
					`{deviceNameSuffix: "-%d", allowMultipleAllocations: true, capacity: {%s}, `+
						`supportedCNIPlugins: [{name: macvlan}]}`, i, strings.Join(capacity, ", "),
				),
			))
	}
	check(t, build(t, slow(1), append(specs, vf(vfExclusive), passthroughPolicy)...), `
pool worker-1/enp3s0f0
  slice of 1
  device enp3s0f0-passthrough
problem device enp3s0f0v0: is not published: its policies need 33 shared counters and the limit is 32: remove capacities or policies
`)
}

func TestBandwidth(t *testing.T) {
	fast := func(numVFs, speed int) []discovery.Device {
		devices := pf("enp3s0f0", numVFs)
		devices[0].LinkSpeed = speed
		return devices
	}
	requests := func(request string) string {
		return `
selector: {cel: 'device.attributes["dra.networking"].type == "pf"'}
exposure: {supportedCNIPlugins: [{name: host-device, exclusive: true}], capacity: {bandwidth: {value: "25000", requestPolicy: ` + request + `}}}`
	}
	for name, test := range map[string]struct {
		devices  []discovery.Device
		policies []string
		want     string
	}{
		"a share is a whole number of steps": {fast(1, 6250), []string{passthroughPolicy, vf(vfExclusive)}, `
pool worker-1/enp3s0f0
  set enp3s0f0-counters: bandwidth=6250 exclusion-slots=2
  slice of 2
  device enp3s0f0-passthrough <- bandwidth=6250 exclusion-slots=2
  device enp3s0f0v0 dra.networking/bandwidth=6200 <- bandwidth=6200 exclusion-slots=1
`},
		"but for a small one": {fast(1, 10), []string{vf(vfExclusive)}, `
pool worker-1/enp3s0f0
  slice of 1
  device enp3s0f0v0 dra.networking/bandwidth=10
`},
		"tiers can add up to more than the link has": {fast(2, 15000), []string{vf(vfTiers)}, `
pool worker-1/enp3s0f0
  set enp3s0f0-counters: bandwidth=15k
  set enp3s0f0-vfs-0: v0-lock=1 v1-lock=1
  slice of 4
  device enp3s0f0v0-bw5000 dra.networking/bandwidth=5k <- bandwidth=5k <- v0-lock=1
  device enp3s0f0v0-bw10000 dra.networking/bandwidth=10k <- bandwidth=10k <- v0-lock=1
  device enp3s0f0v1-bw5000 dra.networking/bandwidth=5k <- bandwidth=5k <- v1-lock=1
  device enp3s0f0v1-bw10000 dra.networking/bandwidth=10k <- bandwidth=10k <- v1-lock=1
`},
		"nothing is counted if no other entry takes any": {fast(1, 10000), []string{passthroughPolicy}, `
pool worker-1/enp3s0f0
  slice of 1
  device enp3s0f0-passthrough
`},
		"concurrently held entries divide the share": {fast(1, 10000),
			[]string{passthroughPolicy, vf(vfMacvlan), vf(vfIpvlan), vf(vfExclusive)}, `
pool worker-1/enp3s0f0
  set enp3s0f0-counters: bandwidth=10k exclusion-slots=3
  set enp3s0f0-vfs-0: v0-ipvlans-capacity=4 v0-macvlans-capacity=4
  slice of 4
  device enp3s0f0-passthrough <- bandwidth=10k exclusion-slots=3
  device enp3s0f0v0-i shared dra.networking/ipvlans=4/1 <- bandwidth=5k exclusion-slots=1 <- v0-ipvlans-capacity=4
  device enp3s0f0v0-m shared dra.networking/macvlans=4/1 <- bandwidth=5k exclusion-slots=1 <- v0-macvlans-capacity=4
  device enp3s0f0v0 dra.networking/bandwidth=10k <- bandwidth=10k exclusion-slots=1 <- v0-ipvlans-capacity=4 v0-macvlans-capacity=4
`},
		"tiers": {fast(2, 25000), []string{vf(vfTiers), passthroughPolicy}, `
pool worker-1/enp3s0f0
  set enp3s0f0-counters: bandwidth=25k exclusion-slots=3
  set enp3s0f0-vfs-0: v0-lock=1 v1-lock=1
  slice of 5
  device enp3s0f0-passthrough <- bandwidth=25k exclusion-slots=3
  device enp3s0f0v0-bw5000 dra.networking/bandwidth=5k <- bandwidth=5k exclusion-slots=1 <- v0-lock=1
  device enp3s0f0v0-bw10000 dra.networking/bandwidth=10k <- bandwidth=10k exclusion-slots=1 <- v0-lock=1
  device enp3s0f0v1-bw5000 dra.networking/bandwidth=5k <- bandwidth=5k exclusion-slots=1 <- v1-lock=1
  device enp3s0f0v1-bw10000 dra.networking/bandwidth=10k <- bandwidth=10k exclusion-slots=1 <- v1-lock=1
`},
		"tiers of the physical function's policy": {fast(1, 25000),
			[]string{vf(vfExclusive), requests(`{default: "5000", validValues: ["5000", "10000"]}`)}, `
pool worker-1/enp3s0f0
  set enp3s0f0-counters: bandwidth=25k exclusion-slots=2
  set enp3s0f0-vfs-0: v0-lock=1
  slice of 3
  device enp3s0f0 dra.networking/bandwidth=25k <- bandwidth=25k exclusion-slots=2
  device enp3s0f0v0-bw5000 dra.networking/bandwidth=5k <- bandwidth=5k exclusion-slots=1 <- v0-lock=1
  device enp3s0f0v0-bw10000 dra.networking/bandwidth=10k <- bandwidth=10k exclusion-slots=1 <- v0-lock=1
`},
		"a default": {fast(4, 25000), []string{vf(vfExclusive), requests(`{default: "5000"}`)}, `
pool worker-1/enp3s0f0
  set enp3s0f0-counters: bandwidth=25k exclusion-slots=5
  slice of 5
  device enp3s0f0 dra.networking/bandwidth=25k <- bandwidth=25k exclusion-slots=5
  device enp3s0f0v0 dra.networking/bandwidth=5k <- bandwidth=5k exclusion-slots=1
  device enp3s0f0v1 dra.networking/bandwidth=5k <- bandwidth=5k exclusion-slots=1
  device enp3s0f0v2 dra.networking/bandwidth=5k <- bandwidth=5k exclusion-slots=1
  device enp3s0f0v3 dra.networking/bandwidth=5k <- bandwidth=5k exclusion-slots=1
`},
		"more than the link has": {fast(1, 5000), []string{vf(vfTiers)}, `
pool worker-1/enp3s0f0
  slice of 1
  device enp3s0f0v0-bw5000 dra.networking/bandwidth=5k
problem policy policy-0: device enp3s0f0: entries of its virtual functions with a bandwidth of 10000 are not published, because the link has 5000: correct capacity[bandwidth], which is in Mbit/s
`},
		"tiers of a link with an unknown speed": {fast(1, 0), []string{vf(vfTiers)}, `
problem policy policy-0: device enp3s0f0: entries of its virtual functions with a bandwidth are not published, because the speed of the link is not known: bring the link up, or remove capacity[bandwidth]
`},
	} {
		t.Run(name, func(t *testing.T) { check(t, build(t, test.devices, test.policies...), test.want) })
	}
}

// The number of functions increases from two to four. The share that was allocated to one function earlier and the new
// shares together exceed the link's speed, so bandwidth is now counted, including the bandwidth of allocated entries.
func TestBandwidthIsCountedUnderAClaim(t *testing.T) {
	before := build(t, pf("enp3s0f0", 2), vf(vfExclusive))
	check(t, buildWith(t, withHeld(t, features(), before, "enp3s0f0v0"), pf("enp3s0f0", 4), vf(vfExclusive)), `
pool worker-1/enp3s0f0
  set enp3s0f0-counters: bandwidth=25k
  slice of 4
  device enp3s0f0v0 dra.networking/bandwidth=12500 <- bandwidth=12500
  device enp3s0f0v1 dra.networking/bandwidth=6200 <- bandwidth=6200
  device enp3s0f0v2 dra.networking/bandwidth=6200 <- bandwidth=6200
  device enp3s0f0v3 dra.networking/bandwidth=6200 <- bandwidth=6200
`)
}

// Claims hold two entries of a function when a policy puts both entries into the same exclusion group. The bandwidth of
// both entries is still counted.
func TestBandwidthOfEntriesThatBeginToExclude(t *testing.T) {
	takes := func(spec, group string) string {
		spec = strings.Replace(spec, "capacity: {", `capacity: {bandwidth: {value: "10000"}, `, 1)
		return vf(strings.Replace(spec, "{", "{"+group, 1))
	}
	policies := func(group string) []string {
		return []string{takes(vfMacvlan, group), takes(vfIpvlan, group)}
	}
	devices := pf("enp3s0f0", 2)
	before := build(t, devices, policies("")...)
	held := withHeld(t, features(), before, "enp3s0f0v0-i", "enp3s0f0v0-m")
	after := buildWith(t, held, devices, policies("exclusionGroup: x, ")...)
	counters := after.Resources.Pools["worker-1/enp3s0f0"].Slices[0].SharedCounters
	bandwidth := counters[0].Counters["bandwidth"].Value
	if bandwidth.Value() != 25000 {
		t.Errorf("counters = %v, so functions could get 30000 Mbit/s on a 25000 Mbit/s link", counters)
	}
	checkHeld(t, after, held.Held)
}

// Allocated entries do not change by a single byte, even if the share would have another size now, and the counter
// covers them. The NIC is also offered as a whole, so that a counter exists.
func TestBandwidthThatIsHeldStays(t *testing.T) {
	published := func(devices []discovery.Device, held map[draslices.EntryID]draslices.Holding,
		specs ...string) draslices.Result {
		decision := policy.Resolve(discovery.Facts{Devices: devices}, policies(t, append(specs, passthroughPolicy)...),
			policy.Node{Name: "worker-1"})
		all := features()
		all.Held = held
		result, err := draslices.Build("worker-1", decision, all)
		if err != nil {
			t.Fatal(err)
		}
		checkValid(t, result)
		return result
	}
	const pool = "worker-1/enp3s0f0"
	for name, test := range map[string]struct {
		spec, entry   string
		before, after []discovery.Device // both contain the held functions
		budget        string
	}{
		"more functions": {vfExclusive, "enp3s0f0v0", pf("enp3s0f0", 2),
			pf("enp3s0f0", 4), "25k"},
		"fewer functions": {vfExclusive, "enp3s0f0v3", pf("enp3s0f0", 4),
			append(pf("enp3s0f0", 2), pf("enp3s0f0", 4)[4]), "25k"},
		"an unknown speed":                         {vfExclusive, "enp3s0f0v0", pf("enp3s0f0", 2), slow(2), "12500"},
		"a tier and an unknown speed":              {vfTiers, "enp3s0f0v0-bw10000", pf("enp3s0f0", 2), slow(2), "10k"},
		"an entry from before its speed was known": {vfExclusive, "enp3s0f0v0", slow(2), pf("enp3s0f0", 2), "25k"},
		"a shared entry": {vfMacvlan, "enp3s0f0v0-m", pf("enp3s0f0", 2),
			pf("enp3s0f0", 4), "25k"},
	} {
		t.Run(name, func(t *testing.T) {
			then, ok := published(test.before, nil, vf(test.spec)).Find(pool, test.entry)
			if !ok {
				t.Fatalf("%s was not published", test.entry)
			}
			result := published(test.after,
				map[draslices.EntryID]draslices.Holding{{Pool: pool, Name: test.entry}: heldAs(then)}, vf(test.spec))
			now, _ := result.Find(pool, test.entry)
			if diff := cmp.Diff(then, now); diff != "" {
				t.Errorf("the entry changed (-before +now):\n%s", diff)
			}
			budget := result.Resources.Pools[pool].Slices[0].SharedCounters[0].Counters["bandwidth"].Value
			if budget.String() != test.budget {
				t.Errorf("bandwidth budget = %s, want %s", &budget, test.budget)
			}
		})
	}
}

// Adapters without an interface can be allocated for their RDMA devices, even to several claims if the policy allows
// it.
func TestAdaptersWithoutInterface(t *testing.T) {
	facts, err := discovery.Read(t.Context(), discoverytest.InfiniBand().Sources())
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		exclusive string
		fitting   int
	}{"exclusive": {", exclusive: true", 2}, "shared": {"", 5}} {
		s := newScheduler(t, build(t, facts.Devices, `
selector: {cel: 'device.attributes["dra.networking"].rdmaLinkLayer == "infiniband"'}
exposure:
  allowMultipleAllocations: `+strconv.FormatBool(test.exclusive == "")+`
  supportedCNIPlugins: [{name: device-only`+test.exclusive+`}]`))
		s.selector = `device.attributes["dra.networking"].rdma`
		fitting := 0
		for range 5 {
			if devices, _ := s.cycle(s.claim("device-only")); len(devices) == 1 {
				fitting++
			}
		}
		if fitting != test.fitting {
			t.Errorf("%s: %d claims got an adapter, want %d", name, fitting, test.fitting)
		}
	}
}

// Claims can select adapters by the partition and the rate of their InfiniBand ports.
func TestAdaptersOfAPartition(t *testing.T) {
	facts, err := discovery.Read(t.Context(), discoverytest.InfiniBand().Sources())
	if err != nil {
		t.Fatal(err)
	}
	s := newScheduler(t, build(t, facts.Devices, `
selector: {cel: 'device.attributes["dra.networking"].rdmaPKeys != ""'}
exposure:
  publish: [rdmaPKeys, rdmaPortGUID, rdmaRate]
  supportedCNIPlugins: [{name: device-only, exclusive: true}]`))
	s.selector = `device.attributes["dra.networking"].rdmaPKeys.contains(",0x8002,") &&
		device.attributes["dra.networking"].rdmaRate >= 400 &&
		device.attributes["dra.networking"].rdmaPortGUID == "0x0002c90300a1b2c1"`
	if devices, _ := s.cycle(s.claim("device-only")); len(devices) != 1 || !strings.Contains(devices[0], "9c-00-0") {
		t.Errorf("allocated %v, want the adapter at 9c:00.0", devices)
	}
	if devices, _ := s.cycle(s.claim("device-only")); len(devices) > 0 {
		t.Errorf("a second claim got %v, although only one adapter is in the partition", devices)
	}
}
