package publish

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/policy"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// holding returns a snapshot with one claim for one device, whose link had the given speed when the claim was prepared.
func holding(name string, speed int, exclusive bool) claims.Snapshot {
	return claims.Snapshot{{
		Claim: cnichain.Claim{Namespace: "ns", Name: "c", UID: "c"},
		Devices: []claims.HeldDevice{{Pool: "n/" + name, Name: name, Exclusive: exclusive, Bandwidth: int64(speed),
			Facts: discovery.Device{Name: discovery.IfName(name), Type: discovery.TypeNIC, LinkSpeed: speed}}},
	}}
}

func seeing(names ...string) (facts discovery.Facts) {
	for _, name := range names {
		facts.Devices = append(facts.Devices, discovery.Device{Name: discovery.IfName(name), Type: discovery.TypeNIC,
			LinkSpeed: 1})
	}
	return facts
}

// Claims are prepared and released while the host is being scanned. For a device that was allocated before or after the
// scan, the state in the claim takes precedence, because the observed state may be incomplete. For a shared device that
// exists, the observed state is correct.
func TestClaimsThatComeAndGoDuringAReading(t *testing.T) {
	for name, test := range map[string]struct {
		reading reading
		want    string // observed devices have speed 1, devices from claims have 7 and 8
		held    int64  // bandwidth that is published as held
	}{
		"not allocated": {reading{seen: seeing("up0")}, "up0:1", 0},
		"held all the time": {reading{before: holding("up0", 7, true), after: holding("up0", 7, true)},
			"up0:7", 7},
		"released, and seen half-way":      {reading{before: holding("up0", 7, true), seen: seeing("up0")}, "up0:7", 7},
		"released, and not seen":           {reading{before: holding("up0", 7, true)}, "up0:7", 7},
		"prepared, and in its pod already": {reading{after: holding("up0", 8, true)}, "up0:8", 8},
		"of another claim": {reading{before: holding("up0", 7, true), after: holding("up0", 8, true)},
			"up0:8", 8},
		"shared": {reading{before: holding("up0", 7, false), seen: seeing("up0"), after: holding("up0", 7, false)},
			"up0:1", 7},
		"shared, and gone": {reading{before: holding("up0", 7, false), after: holding("up0", 7, false)},
			"up0:7", 7},
		"shared, released and gone": {reading{before: holding("up0", 7, false)}, "", 7},
	} {
		var got []string
		for _, device := range test.reading.merge(test.reading.seen).Devices {
			got = append(got, string(device.Name)+":"+string(rune('0'+device.LinkSpeed)))
		}
		if got := strings.Join(got, " "); got != test.want {
			t.Errorf("%s: got devices %s, want %s", name, got, test.want)
		}
		if held := test.reading.holdings()[draslices.EntryID{Pool: "n/up0", Name: "up0"}]; held.Bandwidth != test.held {
			t.Errorf("%s: got holding %+v, want bandwidth %d", name, held, test.held)
		}
	}
}

// A device is gone if it was not found and cannot have been in a pod either before or after the scan.
func TestGoneDevicesOfAReading(t *testing.T) {
	for name, test := range map[string]struct {
		before, after bool // whether the device may be in a pod
		reading       reading
		want          string
	}{
		"nowhere":                        {reading: reading{after: holding("up0", 7, true)}, want: "up0"},
		"on the host":                    {reading: reading{seen: seeing("up0"), after: holding("up0", 7, true)}},
		"returned to the host meanwhile": {before: true, reading: reading{after: holding("up0", 7, true)}},
		"left for a pod meanwhile":       {after: true, reading: reading{after: holding("up0", 7, true)}},
		"released meanwhile":             {reading: reading{}},
		"shared, which stays": {before: true, after: true, reading: reading{after: holding("up0", 7, false)},
			want: "up0"},
	} {
		before := test.reading.after // the same claims
		if name == "released meanwhile" {
			before = holding("up0", 7, true)
		}
		test.reading.before = before
		suspects := before.GoneDevices(nil, func(string, *claims.HeldDevice) bool { return test.before })
		gone := test.reading.goneDevices(suspects, func(string, *claims.HeldDevice) bool { return test.after })
		if got := strings.Join(slices.Sorted(maps.Keys(gone)), " "); got != test.want {
			t.Errorf("%s: got gone devices %q, want %q", name, got, test.want)
		}
	}
}

// Records from an older driver do not contain the published state of the device. A record that does takes precedence,
// regardless of which record is newer.
func TestHoldingsOfEarlierDrivers(t *testing.T) {
	known := holding("up0", 7, true)
	known[0].Devices[0].Persona = &policy.Persona{Policy: "p"}
	for name, r := range map[string]reading{
		"before": {before: known, after: holding("up0", 8, true)},
		"after":  {before: holding("up0", 8, true), after: known},
	} {
		held := r.holdings()[draslices.EntryID{Pool: "n/up0", Name: "up0"}]
		if held.Persona == nil || held.Bandwidth != 7 {
			t.Errorf("%s: got holding %+v, want a persona and bandwidth 7", name, held)
		}
	}
}
