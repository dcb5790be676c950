package view_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/view"
)

func up0() view.Interface {
	return view.Interface{
		Name: "up0", AltNames: []string{"enp1s0"}, Index: 3, Kind: "veth", MAC: "02:00:00:00:00:01",
		MTU: 1500, Up: true,
		Addresses: []string{"10.0.0.1/24"},
	}
}

func TestDifferences(t *testing.T) {
	route := view.Route{Destination: "10.0.0.0/24", Interface: "up0", Source: "10.0.0.1"}
	before := view.View{Interfaces: []view.Interface{up0()}, Routes: []view.Route{route}}
	for name, test := range map[string]struct {
		change func(*view.View)
		want   []string
	}{
		"nothing":                           {change: func(*view.View) {}},
		"moved and back with another index": {change: func(v *view.View) { v.Interfaces[0].Index = 9 }},
		"gone": {
			change: func(v *view.View) { v.Interfaces, v.Routes = nil, nil },
			want:   []string{"link up0 (veth) is gone", `the route "10.0.0.0/24 dev up0 src 10.0.0.1" is gone`},
		},
		"renamed": {
			change: func(v *view.View) { v.Interfaces[0].Name = "dra-1" },
			want:   []string{"link up0: the name is dra-1, was up0"},
		},
		"settings": {
			change: func(v *view.View) {
				link := &v.Interfaces[0]
				link.MAC, link.MTU, link.Up, link.Master, link.AltNames = "02:00:00:00:00:02", 1400, false, "br0", nil
			},
			want: []string{
				"link up0: the MAC address is 02:00:00:00:00:02, was 02:00:00:00:00:01", "link up0: the MTU is 1400, " +
					"was 1500",
				"link up0: up is false, was true", "link up0: the master is br0, was none", "link up0 has lost the " +
					"alternative names enp1s0",
			},
		},
		"addresses": {
			change: func(v *view.View) { v.Interfaces[0].Addresses = []string{"10.0.0.2/24"} },
			want: []string{"link up0 has lost the addresses 10.0.0.1/24",
				"link up0 has gained the addresses 10.0.0.2/24"},
		},
		"more": {
			change: func(v *view.View) {
				v.Interfaces = append(v.Interfaces, view.Interface{Name: "net1", Index: 7, Kind: "macvlan"})
				v.Routes = append(v.Routes,
					view.Route{Destination: "default", Gateway: "10.0.0.9", Interface: "up0", Metric: 5})
			},
			want: []string{"link net1 (macvlan) is new",
				`the route "default via 10.0.0.9 dev up0 metric 5" is new`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			after := view.View{Interfaces: []view.Interface{up0()}, Routes: []view.Route{route}}
			test.change(&after)
			if diff := cmp.Diff(test.want, view.Differences(before, after), cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestBridgeAddressIsIgnored(t *testing.T) {
	before := view.View{Interfaces: []view.Interface{{Name: "br0", Kind: "bridge", MAC: "02:00:00:00:00:01"}}}
	after := view.View{Interfaces: []view.Interface{{Name: "br0", Kind: "bridge"}}}
	if got := view.Differences(before, after); len(got) > 0 {
		t.Error(got)
	}
}
