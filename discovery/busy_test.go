package discovery_test

import (
	"context"
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
)

func TestBusy(t *testing.T) {
	host := discoverytest.NewHost()
	for i, name := range []string{"free", "port", "below", "route"} {
		address := "0000:01:00." + string(rune('0'+i))
		host.Function(address)
		host.NIC(name, address)
	}
	host.Virtual(discovery.RecordedLink{Name: "br0", Kind: "bridge"})
	host.Virtual(discovery.RecordedLink{Name: "below.7", Kind: "vlan", Parent: host.Link("below").Index, VLANID: 7})
	host.Enslave("port", "br0")
	host.DefaultRoute("route")
	for name, want := range map[discovery.IfName]string{
		"free": "", "absent": "", "port": "a port of the bridge br0", "below": "the vlan below.7 stands on it", "route": "default route",
	} {
		got, err := discovery.Busy(context.Background(), host.Sources(), name)
		if err != nil || (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
}
