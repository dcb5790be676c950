package linkkind

import "testing"

func TestIsPair(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]bool{"veth": true, "netkit": true, "vxcan": true, "vlan": false,
		"macvlan": false, "device": false, "": false} {
		if got := IsPair(kind); got != want {
			t.Errorf("IsPair(%q) = %t", kind, got)
		}
	}
}
