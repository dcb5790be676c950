package scheduler

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

const (
	linkSpeed = 100000 // speed of the NICs, in Mbit/s
	functions = 8      // per NIC
)

// asks lists sequences of bandwidths that consecutive claims request from one NIC. 0 means that the claim does not
// request any bandwidth and is allocated the smallest tier.
var asks = [][]int64{
	{50000, 25000, 25000, 10000, 10000, 10000, 0},
	{0, 10000, 10000, 10000, 25000, 25000, 50000},
	{25000, 50000, 10000, 25000, 0, 10000, 10000},
	{10000, 25000, 10000, 50000, 10000, 25000, 0},
	{50000, 50000, 10000, 0},
	{25000, 25000, 25000, 10000, 25000, 10000},
	{10000, 10000, 10000, 10000, 10000, 10000, 10000, 10000, 10000},
	{7000, 10001, 26000, 50001, 25000},
}

// tiers lists the bandwidth tiers in the policy, in Mbit/s.
var tiers = []int64{10000, 25000, 50000}

// A claim for bandwidth is allocated the smallest sufficient tier. The total never exceeds the link's bandwidth, and a
// claim is rejected only if the total would otherwise exceed it.
func TestBandwidth(t *testing.T) {
	onEvery(t, func(t *testing.T, p *plane) {
		n := p.publish(t, "tiers", record(t, machine(len(asks), functions)),
			[]v1alpha1.DeviceExposurePolicy{exposurePolicy(t, "tiers", `
selector: {cel: 'device.attributes["dra.networking"].type == "vf"'}
action: expose
exposure:
  supportedCNIPlugins: [{name: sriov, exclusive: true}]
  capacity: {bandwidth: {value: "100000", requestPolicy: {default: "10000", validValues: ["10000", "25000", "50000"]}}}
`)}, p.encodings...)
		n.offers(t, len(asks)*functions*len(tiers))
		t.Run("orders", func(t *testing.T) {
			for i, order := range asks {
				t.Run(fmt.Sprint(order), func(t *testing.T) {
					t.Parallel()
					if err := n.request(t.Context(), nicName(i), order); err != nil {
						t.Error(err)
					}
				})
			}
		})
	})
}

// request creates claims for bandwidth on a NIC, one at a time: it waits for the scheduler's decision on each claim
// before it creates the next.
func (n node) request(ctx context.Context, nic string, order []int64) error {
	offered, err := n.devices()
	if err != nil {
		return err
	}
	var used, given int64
	for i, amount := range order {
		r := request{class: "sriov", nic: nic}
		if amount > 0 {
			r.capacity = map[string]string{"bandwidth": strconv.FormatInt(amount, 10)}
		}
		pod, err := n.pod(ctx, fmt.Sprintf("%s-%d", nic, i), false, claim(r))
		if err != nil {
			return err
		}
		tier := smallest(amount)
		fits := tier > 0 && used+tier <= linkSpeed && given < functions
		what := fmt.Sprintf("%d Mbit/s beside %d on %d functions", amount, used, given)
		devices, err := n.outcome(ctx, pod, fits)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if !fits {
			continue
		}
		if has := bandwidthOf(offered[devices[0].Device]); has != tier {
			return fmt.Errorf("%s: got %s with a bandwidth of %d, want %d", what, names(devices), has, tier)
		}
		used, given = used+tier, given+1
	}
	return nil
}

// smallest returns the smallest tier that is at least amount, or 0 if there is none.
func smallest(amount int64) int64 {
	for _, tier := range tiers {
		if amount <= tier {
			return tier
		}
	}
	return 0
}

// bandwidthOf returns a device's bandwidth in Mbit/s.
func bandwidthOf(device resourceapi.Device) int64 {
	value := device.Capacity[v1alpha1.AttributeDomain+"/bandwidth"].Value
	return value.Value()
}

// A claim can select a device by the requested capacity alone. It consumes the requested amount, or the default if it
// does not request an amount.
func TestCapacity(t *testing.T) {
	onEvery(t, func(t *testing.T, p *plane) {
		n := p.publish(t, "capacity", record(t, machine(1, functions)), []v1alpha1.DeviceExposurePolicy{
			exposurePolicy(t, "vf", `
selector: {cel: 'device.attributes["dra.networking"].type == "vf"'}
action: expose
exposure: {supportedCNIPlugins: [{name: sriov, exclusive: true}]}
`),
			exposurePolicy(t, "macvlan", `
selector: {cel: 'device.attributes["dra.networking"].type == "pf"'}
action: expose
exposure:
  deviceNameSuffix: -macvlan
  allowMultipleAllocations: true
  supportedCNIPlugins: [{name: macvlan}]
  capacity: {macvlans: {value: "5", requestPolicy: {default: "1", validRange: {min: "1", max: "4", step: "1"}}}}
`)}, p.encodings...)
		n.offers(t, functions+1)
		fair := strconv.Itoa(linkSpeed / functions)
		for i, test := range []struct {
			title    string
			request  request
			device   string // part of the name; empty if the claim is rejected
			consumed string // consumed capacity of a shared device
		}{
			{"two of the NIC's macvlans", request{class: anyPlugin, capacity: map[string]string{"macvlans": "2"}},
				"-macvlan", "2"},
			{"the default", request{class: "macvlan"}, "-macvlan", "1"},
			{"more than are left", request{class: anyPlugin, capacity: map[string]string{"macvlans": "3"}}, "", ""},
			{"more than one claim may have", request{class: anyPlugin, capacity: map[string]string{"macvlans": "5"}},
				"", ""},
			{"the fair share", request{class: anyPlugin, capacity: map[string]string{"bandwidth": fair}}, "v", ""},
			{"more than the fair share",
				request{class: anyPlugin, capacity: map[string]string{"bandwidth": fair + "1"}}, "", ""},
			{"a function", request{class: "sriov"}, "v", ""},
		} {
			pod, err := n.pod(t.Context(), fmt.Sprint(i), false, claim(test.request))
			if err != nil {
				t.Fatal(err)
			}
			devices, err := n.outcome(t.Context(), pod, test.device != "")
			if err != nil {
				t.Fatalf("%s: %v", test.title, err)
			}
			if test.device == "" {
				continue
			}
			if len(devices) != 1 || !strings.HasPrefix(devices[0].Device, nicName(0)+test.device) {
				t.Fatalf("%s: got unexpected devices %s", test.title, names(devices))
			}
			if used, shared := devices[0].ConsumedCapacity["dra.networking/macvlans"]; shared != (test.consumed != "") || shared && used.String() != test.consumed {
				t.Errorf("%s: consumed %s macvlans, want %s", test.title, &used, test.consumed)
			}
		}
	})
}
