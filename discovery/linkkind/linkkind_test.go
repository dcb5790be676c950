package linkkind

import (
	"testing"

	"github.com/vishvananda/netlink"
)

func TestIsPair(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]bool{"veth": true, "netkit": true, "vxcan": true, "vlan": false,
		"macvlan": false, "device": false, "": false} {
		if got := IsPair(kind); got != want {
			t.Errorf("IsPair(%q) = %t", kind, got)
		}
	}
}

func TestLower(t *testing.T) {
	t.Parallel()
	link := func(namespace, parent int) netlink.LinkAttrs {
		return netlink.LinkAttrs{Index: 3, ParentIndex: parent, NetNsID: namespace}
	}
	for name, test := range map[string]struct {
		link netlink.Link
		want int
	}{
		"VLAN":           {link: &netlink.Vlan{LinkAttrs: link(-1, 2)}, want: 2},
		"NIC":            {link: &netlink.Device{LinkAttrs: link(-1, 0)}},
		"itself":         {link: &netlink.Device{LinkAttrs: link(-1, 3)}},
		"in another":     {link: &netlink.Macvlan{LinkAttrs: link(5, 2)}},
		"pair":           {link: &netlink.Veth{LinkAttrs: link(-1, 2)}},
		"VXLAN":          {link: &netlink.Vxlan{LinkAttrs: link(-1, 0), VtepDevIndex: 2}, want: 2},
		"VXLAN, alone":   {link: &netlink.Vxlan{LinkAttrs: link(-1, 0)}},
		"VXLAN, another": {link: &netlink.Vxlan{LinkAttrs: link(5, 0), VtepDevIndex: 2}},
	} {
		if got := Lower(test.link); got != test.want {
			t.Errorf("%s: lower link = %d, want %d", name, got, test.want)
		}
	}
}
