package main

import (
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/view"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// driverHolds simulates a driver with a claim that holds a link.
func (f *fake) driverHolds(link discovery.IfName, exclusive bool) {
	claim := nodestate.Claim{ClaimRecord: nodestate.ClaimRecord{
		Claim: cnichain.Claim{Namespace: "ns", Name: "claim-a", UID: "a"},
		Devices: []nodestate.HeldDevice{{Name: "before", Exclusive: exclusive,
			Facts: discovery.Device{Name: "before", Interface: link}}},
	}}
	f.t.Setenv(nodeclient.SocketVariable, answering(f.t, map[string]any{nodeapi.PathState: nodestate.State{},
		nodeapi.PathClaims: []nodestate.Claim{claim}}))
}

// A chain may use a link that claims share.
func TestSharedLinkOfClaims(t *testing.T) {
	f := newFake(t)
	f.driverHolds("up0", false)
	code, out, errs := f.run(t.Context(), "run", f.write("t.yaml", linkThenTune), "-d", "up0", "--shared", "link")
	if strings.Contains(errs, "is allocated to") {
		t.Errorf("exit status %d\n%s%s", code, out, errs)
	}
}

func TestRefusals(t *testing.T) {
	for name, test := range map[string]struct {
		arguments []string
		change    func(*fake)
		want      string
	}{
		"no device": {want: "instead of a claim, set --device link=LINK"},
		"no such link": {arguments: []string{"-d", "up7"},
			want: "this machine has no such link; it has br0, up0, up1"},
		"no such function": {arguments: []string{"-d", "0000:00:00.0"},
			want: "no network function with that PCI address"},
		"no such step": {arguments: []string{"-d", "tune=up0"},
			want: `topology moved has no root step "tune"; its root steps are link`},
		"shared step": {arguments: []string{"-d", "up0", "--shared", "tune"},
			want: "--shared tune: topology moved has no such root step"},
		"twice": {arguments: []string{"-d", "up0", "-d", "enp1s0"},
			want: `step "link" already uses the link`},
		"namespace": {arguments: []string{"-d", "up0", "--netns", "blue"},
			want: "there is no network namespace at /run/netns/blue"},
		"pod":        {arguments: []string{"-d", "up0", "--pod", "p"}, want: "use NAMESPACE/NAME"},
		"annotation": {arguments: []string{"-d", "up0", "--annotation", "k"}, want: "use KEY=VALUE"},
		"form":       {arguments: []string{"-d", "up0", "-o", "xml"}, want: "use text, json or yaml"},
		"timeout":    {arguments: []string{"-d", "up0", "--timeout", "0s"}, want: "set the maximum duration"},
		"flag":       {arguments: []string{"--devices", "up0"}, want: "unknown flag: --devices"},
		"default route": {
			arguments: []string{"-d", "up0"}, change: func(f *fake) { f.facts.Devices[1].DefaultRoute = true },
			want: "it carries this machine's default route",
		},
		"port": {
			arguments: []string{"-d", "up0"}, change: func(f *fake) {
				f.facts.Devices[1].Master,
					f.facts.Devices[1].MasterKind = "br0", "bridge"
			},
			want: "it is a port of the bridge br0",
		},
		"addresses": {
			arguments: []string{"-d", "up0"}, change: func(f *fake) {
				f.spoil = func(v *view.View) { v.Interfaces[0].Addresses = []string{"10.0.0.1/24"} }
			},
			want: "it has the addresses 10.0.0.1/24, and a plugin that moves it removes them permanently (if the " +
				"plugin leaves it on the machine: --shared link); use another link, or set --force",
		},
		"given to a claim": {
			arguments: []string{"-d", "up0"}, change: func(f *fake) { f.driverHolds("up0", false) },
			want: "it is allocated to ns/claim-a, whose pods would lose their network (if the plugin leaves the link " +
				"on the machine, and they share it: --shared link); use another link, or set --force",
		},
		"given to a claim alone": {
			arguments: []string{"-d", "up0", "--shared", "link"},
			change:    func(f *fake) { f.driverHolds("up0", true) }, want: "it is allocated to ns/claim-a",
		},
		"bridge": {arguments: []string{"-d", "br0"}, want: "cannot use bridge br0 for step link: plugin " +
			"host-device moves"},
		"bridge by force": {
			arguments: []string{"-d", "br0", "--force", "--shared", "link"}, want: "cannot use bridge br0 for step " +
				"link: plugin host-device moves",
		},
		"own namespace": {
			arguments: []string{"-d", "up0", "--netns", "/run/netns/own"},
			change:    func(f *fake) { _ = f.node.Pin("", "/run/netns/own") },
			want:      "this machine's own network namespace",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			if test.change != nil {
				test.change(f)
			}
			code, out, errs := f.run(t.Context(),
				append([]string{"run", f.write("t.yaml", linkThenTune)}, test.arguments...)...)
			if code != exit.Refused || out != "" || !strings.Contains(errs, test.want) {
				t.Errorf("exit status %d, want %d\n%s%s\nwant %q", code, exit.Refused, out, errs, test.want)
			}
			for _, call := range f.node.Calls() {
				if !strings.Contains(call, " VERSION ") {
					t.Errorf("a plugin was called: %s", call)
				}
			}
		})
	}
}
