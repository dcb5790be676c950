package kerneltest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
)

// The plugin directory moves while pods are attached and claims are prepared, as happens when paths.cniBin is changed.
func TestPluginsMoveToAnotherFolder(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	l := newRealLab(t, nil)
	old, moved := t.TempDir(), filepath.Join(t.TempDir(), "moved")
	for _, name := range []string{"macvlan", "static", "tuning"} {
		data, err := os.ReadFile(filepath.Join(l.dir, name))
		l.must(err)
		l.must(os.WriteFile(filepath.Join(old, name), data, 0o755))
	}
	l.dir = old
	l.restart(nil)
	l.uplink("up0")
	const steps = `
- {name: link, type: macvlan, config: {ipam: {type: static, addresses: [{address: 10.3.0.5/24}]}}}
- {name: tune, type: tuning, dependOn: [link], config: {mtu: 1400}}
`
	plan := l.plan("first", steps, l.shared("link", "up0"))
	a, b := l.pod("a", plan), l.pod("b", plan)
	before := l.state()
	a.add()
	l.must(os.Rename(old, moved))
	l.dir = moved
	a.attachment = l.restart(nil)[a.attachment.SandboxID]
	a.healthy()
	a.del()
	l.expect(before)
	b.add()
	b.has("net1 macvlan mtu=1400 up=true 10.3.0.5/24")
	b.del()
	l.expect(before)
}

// A pod may have two claims for the same topology. Plugins that do not create an interface identify their state by
// network and container.
func TestTwoClaimsOfOneTopology(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	l := newRealLab(t, nil)
	l.bridge("br0")
	l.bridge("br1")
	const steps = `
- {name: link, type: bridge}
- {name: limit, type: bandwidth, dependOn: [link], config: {egressRate: 16000000, egressBurst: 800000}}
`
	plan := l.plan("first", steps, l.shared("link", "br0"))
	two := l.planOf(cnichain.Claim{Namespace: "ns", Name: "second", UID: "second"}, "first", steps,
		l.shared("link", "br1"))
	before := l.state()
	a := l.pod("a", plan, two)
	want := l.state()
	a.add()
	a.del()
	l.expect(want)
	a.end()
	a.awaitGone()
	l.expect(before)
}

// If a step modifies an interface, all later steps see the change, even those that do not depend on that step.
func TestAddressOfAnEarlierBranch(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	l := newRealLab(t, nil)
	l.uplink("up0")
	a := l.pod("a", l.plan("first", `
- {name: link, type: macvlan, config: {ipam: {type: static, addresses: [{address: 10.3.0.5/24}]}}}
- {name: tune, type: tuning, dependOn: [link], config: {mac: "02:00:00:00:00:99"}}
- {name: more, type: tuning, dependOn: [tune, link], ifName: "{{ link.interfaceName }}", config: {mtu: 1400}}
`, l.shared("link", "up0")))
	a.add()
	for i := range a.attachment.Steps {
		for _, made := range a.attachment.Steps[i].Merged.Interfaces {
			if made.Name == "net1" && made.Mac != "02:00:00:00:00:99" {
				t.Errorf("step %s reports the wrong MAC address %s for net1", a.attachment.Steps[i].Step.Name, made.Mac)
			}
		}
	}
	if stdin := string(a.attachment.Steps[2].Stdin); !strings.Contains(stdin, `"mac":"02:00:00:00:00:99"`) {
		t.Errorf("prevResult of the last step does not contain the new MAC address: %s", stdin)
	}
	a.del()
}

// An administrator removes the pin of a running pod's namespace. The namespace and the device in it still exist.
func TestPinIsRemovedByHand(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	l := newRealLab(t, nil)
	l.uplink("up0")
	a := l.pod("a", l.plan("first", onlyHostDevice, l.exclusive("link", "up0")))
	before := l.state()
	a.add()
	l.must(l.kernel().Unpin(a.attachment.Pin))
	a.attachment = l.restart(nil)[a.attachment.SandboxID]
	a.del()
	l.expect(before)
	l.empty()

	b := l.pod("b", l.plan("first", onlyHostDevice, l.exclusive("link", "up0")))
	b.add()
	l.must(l.kernel().Unpin(b.attachment.Pin))
	b.attachment.NetNSID = "another" // now the path belongs to another namespace
	b.says(b.tryDel(), "device up0 is neither in the pod nor on the host")
	b.has("net1 veth mtu=1500 up=true") // a link is not touched unless it is proven to be the pod's
}
