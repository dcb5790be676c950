package slices_test

import (
	"fmt"
	"math/rand/v2"
	stdslices "slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

const (
	vfOnRequest = `{supportedCNIPlugins: [{name: sriov, exclusive: true}], linkBandwidth: {default: 1000, ` +
		`validRange: {min: 500, max: 20000, step: 100}}}`
	bandwidthKey resourceapi.QualifiedName      = "dra.networking/bandwidth"
	pfNameKey    resourceapi.FullyQualifiedName = "dra.networking/pfName"
)

// onRequest returns a claim for a function and an amount of bandwidth on the function's link. If amount is 0, the claim
// does not specify an amount.
func (s *scheduler) onRequest(amount int64) *resourceapi.ResourceClaim {
	c := s.claim(classBandwidth, "sriov")
	if amount > 0 {
		c.Spec.Devices.Requests[0].Exactly.Capacity = &resourceapi.CapacityRequirements{
			Requests: map[resourceapi.QualifiedName]resource.Quantity{
				bandwidthKey: *resource.NewQuantity(amount, resource.DecimalSI)}}
	}
	c.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: ptr.To(pfNameKey)}}
	return c
}

// Each claim gets exactly the amount that it requests, rounded up to a whole step, on its function's link. In 2,000
// random rounds of claims and releases on two links with different speeds, the amounts never exceed the speed of a
// link, and a claim is only rejected if no link has both enough bandwidth and a free function.
func TestBandwidthOnRequest(t *testing.T) {
	for cluster, features := range clusters() {
		t.Run(cluster, func(t *testing.T) {
			t.Parallel()
			const functions = 12
			devices := append(pf("enp3s0f0", functions), pf("enp4s0f0", functions)...)
			speeds := map[string]int64{"enp3s0f0": 100_000, "enp4s0f0": 10_000}
			devices[0].LinkSpeed, devices[functions+1].LinkSpeed = 100_000, 10_000
			result := buildWith(t, features, devices, vf(vfOnRequest), passthroughPolicy)
			s := newScheduler(t, result)
			random := rand.New(rand.NewPCG(1, 8))
			type holding struct {
				link   string
				amount int64
			}
			held := map[string]holding{}
			var names []string // names of the claims in held
			granted, refused := 0, 0
			for range 2000 {
				for len(names) > 0 && random.IntN(3) == 0 {
					i := random.IntN(len(names))
					s.release(names[i])
					delete(held, names[i])
					names = stdslices.Delete(names, i, i+1)
				}
				requested := random.Int64N(22_000)
				wanted := max(500, (requested+99)/100*100)
				if requested == 0 {
					wanted = 1000
				}
				taken, used := map[string]int64{}, map[string]int{}
				for _, h := range held {
					taken[h.link] += h.amount
					used[h.link]++
				}
				fits := false
				for link, speed := range speeds {
					fits = fits || wanted <= 20_000 && taken[link]+wanted <= speed && used[link] < functions
				}
				c := s.onRequest(requested)
				results, err := s.allocate(c)
				if err != nil {
					t.Fatal(err)
				}
				if len(results) == 0 {
					refused++
					if fits {
						t.Fatalf("claim for %d was rejected with %v in use", requested, held)
					}
					continue
				}
				granted++
				bandwidth, function := results[0].Devices.Results[0], results[0].Devices.Results[1]
				link, found := strings.CutSuffix(bandwidth.Device, v1alpha1.BandwidthSuffix)
				amount := bandwidth.ConsumedCapacity[bandwidthKey]
				if !found || !strings.HasPrefix(function.Device, link+"v") || bandwidth.ShareID == nil {
					t.Fatalf("%d got function %s with bandwidth of %s", requested, function.Device, bandwidth.Device)
				}
				if amount.Value() != wanted || taken[link]+wanted > speeds[link] {
					t.Fatalf("claim for %d got %s of %s, want %d, and %d was taken", requested, &amount, link, wanted,
						taken[link])
				}
				held[c.Name] = holding{link, wanted}
				names = append(names, c.Name)
			}
			t.Logf("%d claims were allocated and %d were rejected", granted, refused)
			if granted < 500 || refused < 100 {
				t.Errorf("only %d claims were allocated and %d rejected, want at least 500 and 100", granted, refused)
			}
		})
	}
}

// A policy's range is published up to the speed of the link.
func TestRangesOfBandwidthOnRequest(t *testing.T) {
	rangeOf := func(text string) string {
		return vf(`{supportedCNIPlugins: [{name: sriov, exclusive: true}], linkBandwidth: ` + text + `}`)
	}
	for _, test := range []struct {
		spec  string
		speed int
		// amounts maps each requested amount to the amount that the claim gets. 0 means no request, or no allocation.
		amounts map[int64]int64
	}{
		{rangeOf("{default: 1000, validRange: {min: 500, max: 7000, step: 100}}"), 10_000,
			map[int64]int64{0: 1000, 1: 500, 500: 500, 501: 600, 6999: 7000, 7000: 7000, 7001: 0}},
		{rangeOf("{default: 1000, validRange: {min: 500, max: 20000, step: 1000}}"), 10_000, nil}, // wrong default
		{rangeOf("{default: 500, validRange: {min: 500, max: 20500, step: 1000}}"), 10_000,
			map[int64]int64{0: 500, 9500: 9500, 9501: 0}},
		{rangeOf("{default: 1, validRange: {min: 1}}"), 10_000, map[int64]int64{7301: 7301, 10_000: 10_000, 10_001: 0}},
		{rangeOf("{default: 1000, validRange: {min: 1000, step: 9001}}"), 10_000, nil}, // no room for a step
		{rangeOf("{default: 10001}"), 10_000, nil},
		{rangeOf("{default: 10000}"), 10_000, map[int64]int64{0: 10_000, 7: 7}},
		{rangeOf("{default: 100, validValues: [100, 10000, 25000]}"), 10_000,
			map[int64]int64{0: 100, 101: 10_000, 25_000: 0}},
		{rangeOf("{default: 1}"), 0, nil},
	} {
		devices := pf("enp3s0f0", 1)
		devices[0].LinkSpeed = test.speed
		list := policies(t, test.spec)
		result, err := draslices.Build("worker-1",
			policy.Resolve(discovery.Facts{Devices: devices}, list, policy.Node{Name: "worker-1"}), features())
		if err != nil {
			t.Fatal(err)
		}
		checkValid(t, result)
		_, published := result.Find("worker-1/enp3s0f0", "enp3s0f0-bandwidth")
		invalid := len(v1alpha1.Validate(&list[0])) > 0
		if published != (test.amounts != nil) || !published && !invalid && len(result.Problems) != 1 {
			t.Errorf("%s: published = %t, problems = %q", test.spec, published, result.Problems)
		}
		for requested, want := range test.amounts {
			got := int64(0)
			s := newScheduler(t, result)
			results, err := s.allocate(s.onRequest(requested))
			if err != nil {
				t.Fatal(err)
			}
			if len(results) > 0 {
				amount := results[0].Devices.Results[0].ConsumedCapacity[bandwidthKey]
				got = amount.Value()
			}
			if got != want {
				t.Errorf("%s: claim for %d got %d, want %d", test.spec, requested, got, want)
			}
		}
	}
}

// A physical function as a whole, functions with a fixed amount, and bandwidth on request exclude each other, in
// whichever order they are allocated. A shared use of the physical function does not consume its bandwidth.
func TestExclusionOfBandwidthOnRequest(t *testing.T) {
	fixed := vf(`{deviceNameSuffix: "-fixed", supportedCNIPlugins: [{name: netdev, exclusive: true}], ` +
		`capacity: {bandwidth: {value: 2500}}}`)
	first := strings.Replace(fixed, `== "vf"`, `== "vf" && device.attributes["dra.networking"].vfIndex == 0`, 1)
	for cluster, features := range clusters() {
		features.CNIBinaries = features.CNIBinaries.Union(sets.New("netdev"))
		result := buildWith(t, features, pf("enp3s0f0", 3), vf(vfOnRequest), first, passthroughPolicy, macvlanPolicy)
		if !stdslices.ContainsFunc(result.Problems, func(p policy.Problem) bool {
			return p.Policy == "policy-1" && strings.Contains(p.Message, "exclude claims of enp3s0f0-bandwidth")
		}) {
			t.Errorf("%s: problems = %q, want one that excludes claims of enp3s0f0-bandwidth", cluster, result.Problems)
		}
		uses := []use{{classBandwidth, "-bandwidth"}, {"netdev", "v0-fixed"}, {"host-device", "-passthrough"},
			{"macvlan", "-macvlan"}}
		allowed := []string{"bandwidth bandwidth", "bandwidth macvlan", "macvlan bandwidth", "macvlan macvlan",
			"netdev macvlan", "macvlan netdev"}
		for _, earlier := range uses {
			for _, later := range uses {
				pair := earlier.plugin + " " + later.plugin
				checkPair(t, result, earlier, later, stdslices.Contains(allowed, pair))
			}
		}
	}
}

// If a policy edit switches between fixed shares and bandwidth on request, claims of the old kind prevent claims of the
// new kind from using the link until they are released.
func TestBandwidthIsSwitchedUnderClaims(t *testing.T) {
	for cluster, features := range clusters() {
		for _, specs := range [][]string{{vf(vfExclusive), vf(vfOnRequest)}, {vf(vfOnRequest), vf(vfExclusive)}} {
			devices := pf("enp3s0f0", 5)
			before := buildWith(t, features, devices, specs[0])
			s := newScheduler(t, before)
			claim := func(s *scheduler, spec string) *resourceapi.ResourceClaim {
				if spec == vf(vfOnRequest) {
					return s.onRequest(1000)
				}
				return s.claim("sriov")
			}
			results, err := s.allocate(claim(s, specs[0]))
			if err != nil || len(results) != 1 {
				t.Fatalf("%s: got %v (%v), want one allocation", cluster, results, err)
			}
			edited := features
			edited.Held = map[draslices.EntryID]draslices.Holding{}
			for _, r := range results[0].Devices.Results {
				e, _ := before.Find(r.Pool, r.Device)
				edited.Held[draslices.EntryID{Pool: r.Pool, Name: r.Device}] = draslices.Holding{Device: e.Device.Name,
					Bandwidth: e.Bandwidth, Persona: &e.Persona}
			}
			after := newScheduler(t, buildWith(t, edited, devices, specs[1]))
			after.claims, after.counter = s.claims, 10
			if results, err := after.allocate(claim(after, specs[1])); err != nil || len(results) > 0 {
				t.Errorf("%s, %s: got %v (%v) while a claim of the other kind was in use", cluster, specs[1], results,
					err)
			}
			free := newScheduler(t, buildWith(t, features, devices, specs[1]))
			if results, err := free.allocate(claim(free, specs[1])); err != nil || len(results) != 1 {
				t.Errorf("%s, %s: got nothing after the release (%v)", cluster, specs[1], err)
			}
		}
	}
}

// If policies for functions on the same link define different amounts, the first policy takes precedence and a problem
// is reported for the other one.
func TestOneRangeForEachLink(t *testing.T) {
	other := strings.Replace(vf(strings.Replace(vfOnRequest, "{supported", `{deviceNameSuffix: "-b", supported`, 1)),
		"20000", "5000", 1)
	result := build(t, pf("enp3s0f0", 1), vf(vfOnRequest), other)
	e, _ := result.Find("worker-1/enp3s0f0", "enp3s0f0-bandwidth")
	if got := fmt.Sprint(e.Persona.Policy, " ", e.Spec.Capacity[bandwidthKey].RequestPolicy.ValidRange.Max); got !=
		"policy-0 20k" {
		t.Errorf("policy and maximum are %s, want policy-0 20k", got)
	}
	if len(result.Problems) != 1 || result.Problems[0].Policy != "policy-1" {
		t.Errorf("problems = %q, want one for policy-1", result.Problems)
	}
}
