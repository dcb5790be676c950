package nodeclient

import "testing"

// A line stays short whoever shares a device, and leads to a claim and a pod that "netdra claims" lists.
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
