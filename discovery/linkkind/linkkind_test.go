package linkkind

import "testing"

func TestIsPair(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]bool{"veth": true, "netkit": true, "vxcan": true, "vlan": false,
		"macvlan": false, "device": false, "": false} {
		if got := IsPair(kind); got != want {
			t.Errorf("%q is created in pairs: %t", kind, got)
		}
	}
}
