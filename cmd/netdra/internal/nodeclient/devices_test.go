package nodeclient

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
	"github.com/dra-networking/dra-network-driver/policy"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// A claim that could not be prepared still holds its devices, because the scheduler does not allocate them to other
// claims.
func TestDevicesOfRefusedClaims(t *testing.T) {
	entry := func(name string, persona policy.Persona) draslices.Entry {
		return draslices.Entry{Pool: "n/" + name, Name: name, Persona: persona,
			Device: discovery.Device{Name: "link-" + discovery.IfName(name)}}
	}
	shared := policy.Persona{Capacity: []policy.Capacity{{Name: "shares", Value: resource.MustParse("8")}}}
	type amounts = map[resourceapi.QualifiedName]resource.Quantity
	refused := func(claim, device string, consumed amounts) nodestate.RefusedClaim {
		return nodestate.RefusedClaim{
			Claim: cnichain.Claim{Namespace: "ns", Name: claim, UID: claim}, Message: "no vlan",
			Devices: []nodestate.AllocatedDevice{{Pool: "n/" + device, Name: device, Consumed: consumed}},
			Pods:    []string{"ns/p"}, At: time.Unix(7, 0),
		}
	}
	answers := &nodestate.Answers{
		Published: []draslices.Entry{entry("d0", policy.Persona{Exclusive: true}), entry("d1", shared),
			entry("d2", policy.Persona{Exclusive: true})},
		State: nodestate.State{Refused: []nodestate.RefusedClaim{refused("a", "d0", nil), refused("b", "d1",
			amounts{"dra.networking/shares": resource.MustParse("3")})}},
	}
	var got []string
	for _, d := range Devices(answers) {
		got = append(got, d.Name+" "+d.State+" "+d.HeldBy()+" "+d.Why)
		for _, c := range d.Counters {
			got = append(got, c.Name+" "+c.Used+"/"+c.Total)
		}
	}
	want := []string{
		"d0 in use ns/a (pod ns/p) claim ns/a holds it but could not be prepared: no vlan",
		"d1 in use ns/b (pod ns/p) claim ns/b holds it but could not be prepared: no vlan", "shares 3/8",
		"d2 free  ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong devices (-want +got):\n%s", diff)
	}
}

// The text is short regardless of how many claims share a device, and it identifies claims and pods in the same way as
// "netdra claims".
func TestHeldByShort(t *testing.T) {
	idle := Holder{Claim: "apps/idle"}
	single := Holder{Claim: "apps/one", Pods: []string{"apps/web-0"}}
	several := Holder{Claim: "apps/two", Pods: []string{"apps/web-1", "apps/web-2", "apps/web-3"}}
	for _, test := range []struct {
		holders    []Holder
		short, all string
	}{
		{nil, "", ""},
		{[]Holder{idle}, "apps/idle", "apps/idle"},
		{[]Holder{single}, "apps/one (pod apps/web-0)", "apps/one (pod apps/web-0)"},
		{[]Holder{several}, "apps/two (3 pods: apps/web-1, …)", "apps/two (pod apps/web-1, apps/web-2, apps/web-3)"},
		{[]Holder{idle, single}, "2 claims: apps/one (pod apps/web-0), …", "apps/idle, apps/one (pod apps/web-0)"},
		{[]Holder{idle, several, single}, "3 claims: apps/two (3 pods: apps/web-1, …), …",
			"apps/idle, apps/two (pod apps/web-1, apps/web-2, apps/web-3), apps/one (pod apps/web-0)"},
		{[]Holder{idle, idle}, "2 claims: apps/idle, …", "apps/idle, apps/idle"},
	} {
		device := Device{Holders: test.holders}
		if short, all := device.heldByShort(), device.HeldBy(); short != test.short || all != test.all {
			t.Errorf("got %q and %q, want %q and %q", short, all, test.short, test.all)
		}
	}
}
