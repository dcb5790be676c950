package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
)

// busyDriver returns the socket of a driver with an exclusive device in a pod, a shared device whose chain fails for
// one pod, and a quarantined device.
func busyDriver(t *testing.T) (socket string) {
	t.Helper()
	raw := func(text string) any { return json.RawMessage(text) }
	return answering(t, map[string]any{
		"/published": raw(`[
			{"Pool": "n/eth1", "Name": "eth1", "Device": {"name": "eth1", "interface": "eth1", "type": "nic", "pciAddress": "0000:01:00.0"}, "Persona": {"Policy": "whole", "Exclusive": true, "Plugins": ["host-device"]}},
			{"Pool": "n/up0", "Name": "up0", "Device": {"name": "up0", "interface": "up0", "type": "bond"}, "Persona": {"Policy": "shared", "Plugins": ["macvlan", "ipvlan"], "Capacity": [{"Name": "macvlans", "Value": "10"}]}}]`),
		"/claims": raw(`[
			{"claim": {"namespace": "ns", "name": "whole", "uid": "u1"}, "preparedAt": "2026-01-02T03:04:05Z", "devices": [{"pool": "n/eth1", "name": "eth1"}], "plans": [{"topology": "t1"}]},
			{"claim": {"namespace": "default", "name": "mv", "uid": "u2"}, "devices": [{"pool": "n/up0", "name": "up0", "consumed": {"dra.networking/macvlans": "2"}}], "plans": [{"topology": "t2"}]},
			{"claim": {"namespace": "default", "name": "later", "uid": "u3"}, "preparedAt": "2026-01-02T04:04:05Z", "devices": [{"pool": "n/up0", "name": "up0"}], "plans": [{"topology": "t2"}]}]`),
		"/sandboxes": raw(`[
			{"id": "5f1c5f1c5f1c5f1c", "pod": {"namespace": "ns", "name": "web"}, "claims": ["u1"], "state": "ready", "since": "2026-01-02T03:04:06Z", "interfaces": [{"claimUID": "u1", "interface": "net1", "ips": ["10.0.0.2/24", "fd00::2/64"]}]},
			{"id": "6a6a6a6a6a6a6a6a", "pod": {"namespace": "default", "name": "job"}, "claims": ["u2"], "state": "attaching", "since": "2026-01-02T03:05:00Z", "failure": "step \"link\" failed at ADD: no address is free"}]`),
		"/leftovers": raw(
			`[{"key": "k", "reason": "device or resource busy", "attachment": {"steps": [{"step": {"device": ` +
				`{"name": "eth2", "pool": "n/eth2", "pciAddress": "0000:02:00.0", "exclusive": true}, ` +
				`"config": {"type": "macvlan", "psk": "hunter2"}}}]}}]`,
		),
		"/state": raw(`{"node": "n", "refused": [
			{"claim": {"namespace": "ns", "name": "twice", "uid": "u4"}, "pods": ["ns/other"], "at": "2026-01-02T05:00:00Z",
			"message": "cannot prepare claim ns/twice: device eth1 is held by claim ns/whole"}]}`),
	})
}

func TestInventoryGolden(t *testing.T) {
	socket := busyDriver(t)
	var all strings.Builder
	for _, test := range []struct {
		line string
		code int
	}{
		{"devices", exit.OK},
		{"devices -o wide", exit.OK},
		{"devices eth1 0000:02:00.0", exit.OK},
		{"devices up0 -o yaml", exit.OK},
		{"devices nothing", exit.Refused},
		{"devices -o xml", exit.Refused},
		{"claims", exit.Failed},
		{"claims -o wide", exit.Failed},
		{"claims ns/whole later", exit.OK},
		{"claims later -o yaml", exit.OK},
		{"claims ns/twice", exit.Failed},
		{"claims nothing", exit.Refused},
	} {
		code, stdout, stderr := runNetdra(t, "", append(strings.Fields(test.line), "--socket", socket)...)
		if code != test.code {
			t.Errorf("%s: exit status %d, want %d", test.line, code, test.code)
		}
		all.WriteString("$ netdra " + test.line + "\n" + stdout + stderr + "\n")
	}
	golden(t, filepath.Join("testdata", "inventory.txt"), all.String())
}

// The driver reports which plugins are installed on the node, so a device that no class can select is not shown as
// free.
func TestDevicesWithoutPlugins(t *testing.T) {
	entry := func(name string, plugins ...string) map[string]any {
		return map[string]any{"Pool": "n/" + name, "Name": name,
			"Device":  map[string]any{"name": name, "interface": name, "type": "veth"},
			"Persona": map[string]any{"Policy": "p", "Plugins": plugins}}
	}
	socket := answering(t, map[string]any{"/claims": []any{}, "/sandboxes": []any{}, "/leftovers": []any{},
		"/published": []any{entry("s0", "macvaln"), entry("s1", "macvlan", "ipvlan"), entry("s2", "vlan")},
		"/state": map[string]any{"cniPlugins": []string{"ipvlan", "vlan"},
			"unusableCNIs": map[string]string{"vlan": "the kernel has no 8021q"}}})
	code, stdout, stderr := runNetdra(t, "", "devices", "--socket", socket, "-o", "json")
	var got []nodeclient.Device
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != exit.OK || len(got) != 3 {
		t.Fatalf("exit status %d, %v: %s%s", code, err, stdout, stderr)
	}
	for i, want := range []nodeclient.Device{
		{State: nodeclient.Unusable, Why: "no CNI plugin of its policy is installed on the node: macvaln"},
		{State: nodeclient.Free, Plugins: []string{"ipvlan"}},
		{State: nodeclient.Unusable,
			Why: "no CNI plugin of its policy can work on the node: vlan: the kernel has no 8021q"},
	} {
		if got[i].State != want.State || got[i].Why != want.Why || !slices.Equal(got[i].Plugins, want.Plugins) {
			t.Errorf("%s is %q (%s) for plugins %v, want %q (%s) for plugins %v", got[i].Name, got[i].State, got[i].Why,
				got[i].Plugins, want.State, want.Why, want.Plugins)
		}
	}
}

func TestEmptyInventory(t *testing.T) {
	socket := answering(t, map[string]any{"/published": []any{}, "/claims": []any{}, "/sandboxes": []any{},
		"/leftovers": []any{}, "/state": map[string]any{}})
	for command, want := range map[string]string{"devices": "no device is offered", "claims": "no claim is prepared"} {
		if code, stdout, _ := runNetdra(t, "", command, "--socket", socket); code != exit.OK ||
			!strings.Contains(stdout, want) {
			t.Errorf("%s: exit status %d: %s", command, code, stdout)
		}
		code, stdout, _ := runNetdra(t, "", command, "--socket", socket, "-o", "json")
		var list []nodeclient.Device
		if err := json.Unmarshal([]byte(stdout), &list); err != nil || list == nil || code != exit.OK {
			t.Errorf("%s: exit status %d, %v: %s", command, code, err, stdout)
		}
	}
}
