package slices_test

import (
	stdslices "slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/discovery"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// fast returns a physical function with 100 Gbit/s and n virtual functions.
func fast(n int) []discovery.Device {
	devices := pf("enp3s0f0", n)
	devices[0].LinkSpeed = 100_000
	return devices
}

const fastTiers = `{supportedCNIPlugins: [{name: sriov, exclusive: true}], capacity: {bandwidth: {value: "100000", ` +
	`requestPolicy: {default: "10000", validValues: ["10000", "25000", "50000"]}}}}`

// orders calls visit exactly once for each distinct permutation of the values, which must be sorted.
func orders(values []int64, visit func([]int64)) {
	order := make([]int64, 0, len(values))
	var next func(left []int64)
	next = func(left []int64) {
		if len(left) == 0 {
			visit(order)
		}
		for i, v := range left {
			if i > 0 && v == left[i-1] {
				continue
			}
			order = append(order, v)
			next(stdslices.Concat(left[:i], left[i+1:]))
			order = order[:len(order)-1]
		}
	}
	next(values)
}

// Regardless of the order in which claims arrive, each claim gets the smallest sufficient tier if the link has enough
// bandwidth left, and is rejected otherwise. A claim that does not request an amount (0) gets the smallest tier.
func TestTiersInEveryOrder(t *testing.T) {
	for cluster, features := range clusters() {
		if features.ListAttributes { // not relevant for this test
			continue
		}
		t.Run(cluster, func(t *testing.T) {
			t.Parallel()
			result := buildWith(t, features, fast(8), vf(fastTiers), passthroughPolicy)
			count := 0
			orders([]int64{0, 10_000, 10_000, 25_000, 25_000, 50_000, 50_000}, func(order []int64) {
				if count++; count%10 == 1 || rounds(10) == 10 {
					checkOrder(t, result, order)
				}
			})
			if count != 630 { // 7! / 2! / 2! / 2!
				t.Errorf("tested %d orders, want 630", count)
			}
		})
	}
}

func checkOrder(t *testing.T, result draslices.Result, order []int64) {
	t.Helper()
	s := newScheduler(t, result)
	left := int64(100_000)
	for i, amount := range order {
		w := wish{plugin: "sriov"}
		if amount > 0 {
			w.stock, w.amount = "bandwidth", amount
		}
		tier := max(amount, 10_000)
		devices, _ := s.cycle(s.wishing(testClaim{i + 1, []wish{w}}))
		if got := len(devices) == 1; got != (tier <= left) {
			t.Fatalf("order %d: claim %d, for %d, got devices %v with %d left", order, i+1, amount, devices, left)
		}
		if len(devices) == 0 {
			continue
		}
		e, _ := result.Find("worker-1/enp3s0f0", devices[0])
		if e.Bandwidth != tier {
			t.Fatalf("order %d: claim %d for %d got %s with a bandwidth of %d", order, i+1, amount, e.Name, e.Bandwidth)
		}
		left -= tier
	}
}

// Multiple requests in the same cycle or in the same claim cannot exceed the limit either.
func TestTiersInOneCycle(t *testing.T) {
	result := build(t, fast(8), vf(fastTiers))
	request := func(amounts ...int64) (wanted []wish) {
		for _, amount := range amounts {
			wanted = append(wanted, wish{"sriov", "bandwidth", amount})
		}
		return wanted
	}
	for _, test := range []struct {
		claims [][]wish
		fits   bool
	}{
		{[][]wish{request(25_000, 50_000, 25_000)}, true},
		{[][]wish{request(25_000), request(50_000), request(25_000)}, true},
		{[][]wish{request(25_000, 50_000), request(25_000)}, true},
		{[][]wish{request(25_000, 50_000, 25_001)}, false},
		{[][]wish{request(50_000), request(50_000), request(1)}, false},
		{[][]wish{request(50_001)}, false},
	} {
		s := newScheduler(t, result)
		var claims []*resourceapi.ResourceClaim
		for i, requests := range test.claims {
			claims = append(claims, s.wishing(testClaim{i + 1, requests}))
		}
		devices, _ := s.cycle(claims...)
		if got := len(devices) > 0; got != test.fits {
			t.Errorf("%v: got devices %v, want claims to fit: %t", test.claims, devices, test.fits)
		}
	}
}

// Without tiers, every virtual function has a fixed share. A claim for an amount up to this share gets the share, and a
// claim for more is rejected.
func TestSharesOfBandwidth(t *testing.T) {
	result := build(t, fast(8), vf(vfExclusive))
	for amount, fits := range map[int64]bool{0: true, 1: true, 10_000: true, 12_500: true, 12_501: false,
		25_000: false} {
		s := newScheduler(t, result)
		w := wish{plugin: "sriov"}
		if amount > 0 {
			w.stock, w.amount = "bandwidth", amount
		}
		for i := range 9 {
			devices, _ := s.cycle(s.wishing(testClaim{i + 1, []wish{w}}))
			if got := len(devices) == 1; got != (fits && i < 8) {
				t.Errorf("claim %d for %d got %v", i+1, amount, devices)
			}
		}
	}
}

// A claim gets the number of shares that it requests, or one by default. The number is limited by the policy's limit
// per claim and by the number of shares that are still available.
func TestAmountsOfShares(t *testing.T) {
	s := newScheduler(t, build(t, nics(), macvlanPolicy, passthroughPolicy))
	for i, test := range []struct {
		amount int64
		fits   bool
	}{{5, false}, {2, true}, {3, false}, {0, true}, {2, false}, {1, true}, {0, false}} {
		w := wish{plugin: "macvlan"}
		if test.amount > 0 {
			w.stock, w.amount = "macvlans", test.amount
		}
		devices, _ := s.cycle(s.wishing(testClaim{i + 1, []wish{w}}))
		if got := len(devices) == 1; got != test.fits {
			t.Errorf("claim %d for %d macvlans got %v", i+1, test.amount, devices)
		}
	}
}
