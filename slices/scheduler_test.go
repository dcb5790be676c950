package slices_test

import (
	"errors"
	"fmt"
	"maps"
	stdslices "slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// scheduler is the real allocator, with the bookkeeping that kube-scheduler does between cycles: an exclusive result
// becomes an allocated device, and a share becomes a shared device with its consumed capacity.
type scheduler struct {
	t       testing.TB
	slices  []*resourceapi.ResourceSlice
	claims  map[string]*resourceapi.AllocationResult
	counter int
	// lists and groups indicate which feature gates the slices require in the cluster.
	lists, groups bool
	// selector is the expression that a step in a topology adds to its class, or empty if there is none.
	selector string
}

func newScheduler(t testing.TB, result draslices.Result) *scheduler {
	s := &scheduler{t: t, claims: map[string]*resourceapi.AllocationResult{}, lists: hasLists(result),
		groups: hasGroups(result)}
	for pool, resources := range result.Resources.Pools {
		for i, slice := range resources.Slices {
			name := "worker-1"
			s.slices = append(s.slices, &resourceapi.ResourceSlice{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%05x-%s", i, strings.ReplaceAll(pool, "/", "-"))},
				Spec: resourceapi.ResourceSliceSpec{
					Driver: v1alpha1.AttributeDomain,
					Pool: resourceapi.ResourcePool{Name: pool, Generation: 1,
						ResourceSliceCount: int64(len(resources.Slices))},
					NodeName:       &name,
					Devices:        slice.Devices,
					SharedCounters: slice.SharedCounters,
				},
			})
		}
	}
	stdslices.SortFunc(s.slices, func(a, b *resourceapi.ResourceSlice) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// classBandwidth is the class for link bandwidth.
const classBandwidth = "bandwidth"

// List and Get return classes named after CNI plugins, like those that the controller creates for root steps.
func (s *scheduler) List() ([]*resourceapi.DeviceClass, error) { return nil, errors.New("not needed") }

func (s *scheduler) Get(plugin string) (*resourceapi.DeviceClass, error) {
	const isOurs = `device.driver == "dra.networking"`
	supports := fmt.Sprintf(`device.attributes["cni.dra.networking"].?%s.orValue(false)`, v1alpha1.CNIAttribute(plugin))
	if s.lists {
		supports = fmt.Sprintf(
			`has(device.attributes["dra.networking"].supportedCNIs) && `+
				`device.attributes["dra.networking"].supportedCNIs.includes(%q)`, plugin,
		)
	}
	if plugin == classBandwidth {
		supports = `device.attributes["dra.networking"].type == "bandwidth"`
	}
	expression := isOurs + " && " + supports
	if s.selector != "" {
		expression += fmt.Sprintf(" && (%s)", s.selector)
	}
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: plugin}}
	class.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}
	return class, nil
}

// claim returns a claim with one request for each plugin.
func (s *scheduler) claim(plugins ...string) *resourceapi.ResourceClaim {
	s.counter++
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
		Name: fmt.Sprintf("claim-%d", s.counter)}}
	c.UID = types.UID(c.Name)
	for i, plugin := range plugins {
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, resourceapi.DeviceRequest{
			Name: fmt.Sprintf("r%d", i),
			Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: plugin,
				AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1},
		})
	}
	return c
}

// state returns the input for the scheduler at the start of a cycle.
func (s *scheduler) state() structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, allocation := range s.claims {
		for _, r := range allocation.Devices.Results {
			id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
			if r.ShareID == nil {
				state.AllocatedDevices.Insert(id)
				continue
			}
			state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
			state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
		}
	}
	return state
}

// expressions caches the compiled expressions of all classes, as the scheduler does. withLists contains the same
// expressions, compiled with the feature DRAListTypeAttributes enabled.
var (
	expressions = dracel.NewCache(100, dracel.Features{EnableConsumableCapacity: true})
	withLists   = dracel.NewCache(100, dracel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: true})
)

// allocate runs one scheduling cycle. It returns no results if the claims do not fit.
func (s *scheduler) allocate(claims ...*resourceapi.ResourceClaim) ([]resourceapi.AllocationResult, error) {
	features := structured.Features{AdminAccess: true, PrioritizedList: true, PartitionableDevices: true,
		ConsumableCapacity: true, DeviceTaints: true,
		ListTypeAttributes: s.lists, CompatibilityGroups: s.groups}
	compiled := expressions
	if s.lists {
		compiled = withLists
	}
	allocator, err := structured.NewAllocator(s.t.Context(), features, s.state(), s, s.slices, compiled)
	if err != nil {
		return nil, err
	}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}
	results, err := allocator.Allocate(s.t.Context(), node, claims)
	for i, result := range results {
		s.claims[claims[i].Name] = &result
	}
	return results, err
}

// cycle allocates claims in one scheduling cycle. It returns the names of the devices, and the keys for releasing the
// claims. Both are empty if the claims do not fit.
func (s *scheduler) cycle(claims ...*resourceapi.ResourceClaim) (devices []string, keys []string) {
	s.t.Helper()
	results, err := s.allocate(claims...)
	if err != nil {
		s.t.Fatal(err)
	}
	for i, result := range results {
		keys = append(keys, claims[i].Name)
		for _, r := range result.Devices.Results {
			devices = append(devices, r.Device)
		}
	}
	return devices, keys
}

// release releases the claims with the given keys.
func (s *scheduler) release(keys ...string) {
	for _, key := range keys {
		delete(s.claims, key)
	}
}

// use is one way of using a device: the plugin in the claim and the entry that the claim must get.
type use struct {
	plugin, device string
}

// TestExclusion tries every ordered pair of uses on a machine: in separate cycles, in one cycle, in one claim, and
// again once the first use has been released.
func TestExclusion(t *testing.T) {
	macvlan, ipvlan := use{"macvlan", "-macvlan"}, use{"ipvlan", "-ipvlan"}
	passthrough, vf := use{"host-device", "-passthrough"}, use{"sriov", "v"}
	vfOnly := strings.Replace(vfPolicy, ", {name: host-device, exclusive: true}", "", 1)
	ungrouped := func(spec string) string { return strings.Replace(spec, "exclusionGroup: rx-handler", "", 1) }
	cases := map[string]struct {
		devices  []discovery.Device
		policies []string
		uses     []use
		// together contains the pairs that may be in use at the same time, regardless of their order.
		together [][2]use
	}{
		"macvlan and ipvlan of one NIC exclude each other": {
			nics(), []string{macvlanPolicy, ipvlanPolicy}, []use{macvlan, ipvlan}, [][2]use{{macvlan, macvlan},
				{ipvlan, ipvlan}}},
		"macvlan and passthrough of one NIC exclude each other": {
			nics(), []string{macvlanPolicy, passthroughPolicy}, []use{macvlan, passthrough},
			[][2]use{{macvlan, macvlan}}},
		"without a group macvlan and ipvlan coexist": {
			nics(), []string{ungrouped(macvlanPolicy), ungrouped(ipvlanPolicy), passthroughPolicy},
			[]use{macvlan, ipvlan, passthrough},
			[][2]use{{macvlan, macvlan}, {ipvlan, ipvlan}, {macvlan, ipvlan}}},
		"a physical function and its virtual functions": {
			pf("enp3s0f0", 4), []string{passthroughPolicy, vfOnly}, []use{passthrough, vf}, [][2]use{{vf, vf}}},
		"everything on one physical function": {
			pf("enp3s0f0", 4), []string{macvlanPolicy, ipvlanPolicy, passthroughPolicy, vfOnly}, []use{macvlan, ipvlan,
				passthrough, vf},
			[][2]use{{macvlan, macvlan}, {ipvlan, ipvlan}, {vf, vf}, {vf, macvlan}, {vf, ipvlan}}},
	}
	for name, test := range cases {
		for cluster, features := range clusters() {
			t.Run(name+", "+cluster, func(t *testing.T) {
				result := buildWith(t, features, test.devices, test.policies...)
				for _, first := range test.uses {
					for _, second := range test.uses {
						allowed := stdslices.Contains(test.together, [2]use{first, second}) ||
							stdslices.Contains(test.together, [2]use{second, first})
						checkPair(t, result, first, second, allowed)
					}
				}
			})
		}
	}
}

// checkPair tries to allocate two uses in each of the ways in which claims can arrive.
func checkPair(t *testing.T, result draslices.Result, first, second use, allowed bool) {
	t.Helper()
	report := func(how string, devices []string) {
		t.Helper()
		if got := len(devices) > 0; got != allowed {
			t.Errorf("%s with %s %s: allocated = %t (%v), want %t", first.plugin, second.plugin, how, got,
				devices, allowed)
		}
	}
	s := newScheduler(t, result)
	got, keys := s.cycle(s.claim(first.plugin))
	if len(got) != 1 || !strings.Contains(got[0], first.device) {
		t.Fatalf("%s on its own got %v, want one matching device", first.plugin, got)
	}
	devices, _ := s.cycle(s.claim(second.plugin))
	report("in a later cycle", devices)
	if !allowed {
		s.release(keys...)
		if devices, _ = s.cycle(s.claim(second.plugin)); len(devices) == 0 {
			t.Errorf("%s was rejected after the release of %s", second.plugin, first.plugin)
		}
	}
	s = newScheduler(t, result)
	devices, _ = s.cycle(s.claim(first.plugin), s.claim(second.plugin))
	report("in one cycle", devices)
	s = newScheduler(t, result)
	devices, _ = s.cycle(s.claim(first.plugin, second.plugin))
	report("in one claim", devices)
}

// A NIC can be shared until its capacity is used up, and is free for other uses once the last share has been released.
func TestSharesAreCounted(t *testing.T) {
	s := newScheduler(t, build(t, nics(), macvlanPolicy, ipvlanPolicy, passthroughPolicy))
	var shares []string
	for i := range 4 {
		devices, keys := s.cycle(s.claim("macvlan"))
		if len(devices) != 1 {
			t.Fatalf("macvlan %d was rejected", i+1)
		}
		shares = append(shares, keys...)
	}
	if devices, _ := s.cycle(s.claim("macvlan")); len(devices) != 0 {
		t.Errorf("a fifth macvlan got %v, want it rejected", devices)
	}
	s.release(shares[:3]...)
	for _, plugin := range []string{"ipvlan", "host-device"} {
		if devices, _ := s.cycle(s.claim(plugin)); len(devices) != 0 {
			t.Errorf("%s got %v while a macvlan was still in use", plugin, devices)
		}
	}
	s.release(shares[3])
	devices, keys := s.cycle(s.claim("ipvlan"))
	if len(devices) != 1 {
		t.Error("ipvlan was rejected on a free NIC")
	}
	s.release(keys...)
	if devices, _ := s.cycle(s.claim("host-device")); len(devices) != 1 {
		t.Error("host-device was rejected on a free NIC")
	}
}

// All virtual functions can be allocated in addition to a macvlan, but each of them only once.
func TestAllVirtualFunctionsFit(t *testing.T) {
	s := newScheduler(t, build(t, pf("enp3s0f0", 4), macvlanPolicy, passthroughPolicy, vfPolicy))
	if devices, _ := s.cycle(s.claim("macvlan")); len(devices) != 1 {
		t.Fatal("macvlan was rejected")
	}
	got := map[string]bool{}
	for range 4 {
		devices, _ := s.cycle(s.claim("sriov"))
		for _, d := range devices {
			got[d] = true
		}
	}
	if names := strings.Join(stdslices.Sorted(maps.Keys(got)), " "); names != "enp3s0f0v0 enp3s0f0v1 enp3s0f0v2 "+
		"enp3s0f0v3" {
		t.Errorf("got %s, want the four virtual functions", names)
	}
	if devices, _ := s.cycle(s.claim("sriov")); len(devices) != 0 {
		t.Errorf("a fifth virtual function got %v, want it rejected", devices)
	}
}

// While a virtual function is a port of a bridge, the physical function cannot be allocated, but the other virtual
// functions can be.
func TestEnslavedVirtualFunctionIsSafe(t *testing.T) {
	devices := pf("enp3s0f0", 3)
	devices[2].Master = "br-data"
	exclude := `
selector: {cel: 'device.attributes["dra.networking"].type == "vf" && device.attributes["dra.networking"].masterBridge != ""'}
action: exclude`
	vfOnly := strings.Replace(vfPolicy, ", {name: host-device, exclusive: true}", "", 1)
	for want, specs := range map[int][]string{2: {passthroughPolicy, vfOnly, exclude}, 3: {passthroughPolicy, vfOnly}} {
		s := newScheduler(t, build(t, devices, specs...))
		if got, _ := s.cycle(s.claim("host-device")); len(got) > 0 {
			t.Errorf("the physical function was allocated while %d virtual functions were offered: %v", want, got)
		}
		for range 4 {
			s.cycle(s.claim("sriov"))
		}
		if len(s.claims) != want {
			t.Errorf("%d virtual functions were allocated, want %d", len(s.claims), want)
		}
	}
}

// nics returns a machine with one NIC.
func nics() []discovery.Device { return []discovery.Device{nic("eth1")} }

// A claim gets the smallest sufficient tier until the link's bandwidth is used up.
func TestTiers(t *testing.T) {
	s := newScheduler(t, build(t, pf("enp3s0f0", 4), vf(vfTiers), passthroughPolicy))
	for i, test := range []struct {
		bandwidth int64
		want      string
	}{
		{10001, ""}, {7000, "enp3s0f0v0-bw10000"}, {10000, "enp3s0f0v1-bw10000"}, {6000, ""},
		{0, "enp3s0f0v2-bw5000"}, {1, ""},
	} {
		w := wish{plugin: "sriov"}
		if test.bandwidth > 0 {
			w.stock, w.amount = "bandwidth", test.bandwidth
		}
		devices, _ := s.cycle(s.wishing(testClaim{i + 1, []wish{w}}))
		if got := strings.Join(devices, " "); got != test.want {
			t.Errorf("for a bandwidth of %d: got %q, want %q", test.bandwidth, got, test.want)
		}
	}
	if devices, _ := s.cycle(s.claim("host-device")); len(devices) > 0 {
		t.Errorf("the physical function was allocated while its virtual functions were in use: %v", devices)
	}
}
