package kerneltest

import (
	"context"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

// shape is a chain and its effect on a pod.
type shape struct {
	steps   string
	devices func(*realLab) []cnichain.RootDevice
	links   []string
	// state maps the second word of a state line to the substrings expected in that line while the pod is running.
	state map[string][]string
}

func uplinks(names ...string) func(*realLab) []cnichain.RootDevice {
	return func(l *realLab) []cnichain.RootDevice {
		var devices []cnichain.RootDevice
		for _, name := range names {
			l.uplink(name)
			devices = append(devices, l.shared("link", name))
		}
		return devices
	}
}

func shapes() map[string]shape {
	return map[string]shape{
		"linear": {
			steps: realMacvlan, devices: uplinks("up0"), links: []string{"net1 macvlan mtu=1400 up=true 10.1.0.2/24"},
			state: map[string][]string{
				"rule":  {"from 10.1.0.2/32 to all table 100"},
				"route": {"a route net1 table 100 to 10.1.0.0/24"},
			},
		},
		"two instances": {steps: realMacvlan, devices: uplinks("up0", "up1"), links: []string{
			"net1 macvlan mtu=1400 up=true 10.1.0.2/24",
			"net2 macvlan mtu=1400 up=true 10.1.0.3/24",
		}, state: map[string][]string{
			"rule":  {"from 10.1.0.2/32 to all table 100", "from 10.1.0.3/32 to all table 101"},
			"route": {"a route net1 table 100 to 10.1.0.0/24", "a route net2 table 101 to 10.1.0.0/24"},
		}},
		"three instances": {steps: realMacvlan, devices: uplinks("up0", "up1", "up2"), links: []string{
			"net1 macvlan mtu=1400 up=true 10.1.0.2/24",
			"net2 macvlan mtu=1400 up=true 10.1.0.3/24",
			"net3 macvlan mtu=1400 up=true 10.1.0.4/24",
		}},
		"two roots, and a step on both": {
			steps: `
- {name: left, type: macvlan, config: {mode: bridge}}
- {name: right, type: bridge, config: {ipam: {type: static, addresses: [{address: 10.4.0.4/24}]}}}
- {name: tune, type: tuning, dependOn: [left, right], ifName: "{{ right.interfaceName }}", config: {mtu: 1300, mac: "{{ left.mac }}"}}
`,
			devices: func(l *realLab) []cnichain.RootDevice {
				l.uplink("up0")
				l.bridge("br0")
				return []cnichain.RootDevice{l.shared("left", "up0"), l.shared("right", "br0")}
			},
			links: []string{"net1 macvlan mtu=1500 up=true", "net2 veth mtu=1300 up=true 10.4.0.4/24"},
		},
		"templates": {
			// An integer attribute must remain an integer; otherwise, macvlan would reject its mtu.
			steps: `
- name: link
  type: macvlan
  ifName: m-{{ device.ifName }}
  config:
    mode: bridge
    mtu: "{{ device.mtu }}"
    ipam: {type: host-local, dataDir: /var/lib/leases, ranges: [[{subnet: 10.1.0.0/24}]], routes: [{dst: 10.98.0.0/16}]}
- name: side
  type: bridge
  dependOn: [link]
  ifName: "{{ pod.name }}0"
  config: {bridge: br0, mtu: 1370, ipam: {type: static, addresses: [{address: "{{ link.ips[0].address }}"}], routes: [{dst: 10.97.0.0/16, gw: "{{ link.ips[0].gateway }}"}]}}
`,
			devices: func(l *realLab) []cnichain.RootDevice { l.bridge("br0"); return uplinks("up0")(l) },
			links:   []string{"a0 veth mtu=1370 up=true 10.1.0.2/24", "m-up0 macvlan mtu=1380 up=true 10.1.0.2/24"},
			state:   map[string][]string{"route": {"to 10.98.0.0/16 via 10.1.0.1", "to 10.97.0.0/16 via 10.1.0.1"}},
		},
		"after a step with a templated name": {
			steps: wants(`"m-{{ device.ifName }}"`) + "\n- {name: tune, type: tuning, dependOn: [link], config: " +
				"{mtu: 1400}}",
			devices: uplinks("up0"), links: []string{"m-up0 macvlan mtu=1400 up=true 10.1.0.2/24"},
		},
		"ptp": {
			steps: `
- {name: link, type: ptp, config: {mtu: 1440, ipam: {type: host-local, dataDir: /var/lib/leases, ranges: [[{subnet: 10.5.0.0/24}], [{subnet: "fd00:5::/64"}]]}}}
- {name: limit, type: bandwidth, dependOn: [link], config: {ingressRate: 8000000, ingressBurst: 800000}}
`,
			devices: uplinks("up0"), links: []string{"net1 veth mtu=1440 up=true 10.5.0.2/24 fd00:5::2/64"},
			state: map[string][]string{"queue": {" tbf parent root"}, "route": {"to 10.5.0.2/32", "to fd00:5::2/128"}},
		},
	}
}

func TestRealShapes(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	for name, shape := range shapes() {
		t.Run(name, func(t *testing.T) {
			l := newRealLab(t, nil)
			a := l.pod("a", l.plan("first", shape.steps, shape.devices(l)...))
			before := l.state()
			a.add()
			a.has(shape.links...)
			for what, parts := range shape.state {
				l.mentions(what, parts...)
			}
			a.healthy()
			a.del()
			l.expect(before)
			l.leases()
			l.empty()
		})
	}
}

// Plugins that set up masquerading look up the addresses of the interface in order to remove the rules for them.
func TestRealMasqueradingWhenTheLinkIsGone(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	for _, plugin := range []string{"bridge", "ptp"} {
		for name, happens := range map[string]func(*realPod) []string{"renamed": renamed, "deleted": deleted,
			"swapped": swapped} {
			t.Run(plugin+"/"+name, func(t *testing.T) {
				l := newRealLab(t, nil)
				l.needs("iptables", "nft")
				// Leftover rules must not affect the next subtest.
				l.Cleanup(func() { _ = exec.Command("nft", "flush", "ruleset").Run() })
				l.bridge("br0")
				steps := "\n- {name: link, type: " + plugin +
					", config: {ipMasq: true, ipMasqBackend: iptables, ipam: {type: host-local, dataDir: " +
					"/var/lib/leases, ranges: [[{subnet: 10.3.0.0/24}]]}}}"
				l.prime(l.plan("first", steps, l.shared("link", "br0")))
				a := l.pod("a", l.plan("first", steps, l.shared("link", "br0")))
				before := l.filters()
				a.add()
				happens(a)
				a.del()
				if diff := cmp.Diff(before, l.filters()); diff != "" {
					t.Errorf("packet filters (-before +after):\n%s", diff)
				}
				l.leases()
				l.empty()
			})
		}
	}
}

// Several instances of a chain share a network name. bandwidth derives its ifb from this name, and portmap and
// masquerading derive their chains from it.
func TestRealInstancesWithPerNetworkState(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	for name, steps := range map[string]string{
		"bandwidth": `
- {name: link, type: bridge}
- {name: limit, type: bandwidth, dependOn: [link], config: {egressRate: 16000000, egressBurst: 800000}}
`,
		"masquerading": `
- {name: link, type: bridge, config: {ipMasq: true, ipMasqBackend: iptables, ipam: {type: host-local, dataDir: /var/lib/leases, ranges: [[{subnet: 10.3.0.0/24}]]}}}
`,
	} {
		t.Run(name, func(t *testing.T) {
			l := newRealLab(t, nil)
			l.needs("iptables", "nft")
			l.needsKind(&netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: "ifb9"}})
			l.bridge("br0")
			l.bridge("br1")
			l.prime(l.plan("first", steps, l.shared("link", "br0")))
			a := l.pod("a", l.plan("first", steps, l.shared("link", "br0"), l.shared("link", "br1")))
			before := l.state()
			a.add()
			if len(a.show()) != 2 {
				t.Errorf("links in the pod = %v, want two", a.show())
			}
			if name == "masquerading" {
				// The instances share a network, so in the same container they also share a rule chain. The first
				// instance cannot remove the chain while the second one is using it, so the driver retries.
				l.says(a.tryDel(), "CHAIN_DEL failed")
			}
			a.del()
			l.expect(before)
			l.empty()
		})
	}
}

// If a pod has two claims, releasing one does not affect the other.
func TestRealClaimsOfOnePod(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	l := newRealLab(t, nil)
	l.uplink("up0")
	l.uplink("up1")
	a := l.pod("a", l.plan("first", realMacvlan, l.shared("link", "up0")),
		l.plan("second", realHostDevice, l.exclusive("link", "up1")))
	before := l.state()
	a.add()
	a.has("net1 macvlan mtu=1400 up=true 10.1.0.2/24", "net2 veth mtu=1400 up=true 10.3.0.5/24")
	a.del("second")
	a.has("net1 macvlan mtu=1400 up=true 10.1.0.2/24")
	l.leases("first.link/10.1.0.2")
	l.onHost("up1", func(netlink.Link) error { return nil })
	a.del("first")
	l.expect(before)
	l.empty()
}

// wants returns a chain that requests an interface name.
func wants(name string) string {
	return "\n- {name: link, type: macvlan, ifName: " + name +
		", config: {mode: bridge, ipam: {type: host-local, dataDir: /var/lib/leases, ranges: [[{subnet: " +
		"10.1.0.0/24}]]}}}"
}

// A name that is already in use is rejected, whichever link has it, and nothing changes.
func TestRealNameCollisions(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	for name, test := range map[string]struct {
		prepare func(*realPod)
		chains  []string
		says    []string
	}{
		"altname of eth0": {func(p *realPod) { p.altName("data0") }, []string{wants("data0")},
			[]string{`"data0"`, "the pod's own network"}},
		"eth0 by a template": {func(p *realPod) { p.attachment.Pod.Name = "eth0" }, []string{wants(`"{{ pod.name }}"`)},
			[]string{"eth0", "the pod's own network"}},
		"altname by a template": {func(p *realPod) { p.altName("data0"); p.attachment.Pod.Name = "data0" },
			[]string{wants(`"{{ pod.name }}"`)},
			[]string{"data0", "already"}},
		"two claims": {func(*realPod) {}, []string{wants("data0"), wants("data0")},
			[]string{`"data0"`, "first", "second"}},
		"two claims by templates": {func(*realPod) {}, []string{wants(`"{{ pod.name }}0"`), wants(`"{{ pod.name }}0"`)},
			[]string{"a0", "already"}},
		"a claim and a free name": {func(*realPod) {}, []string{wants(`"{{ pod.uid }}"`), wants("uid-a")},
			[]string{"uid-a", "already"}},
		"an invalid name": {func(p *realPod) { p.attachment.Pod.Name = "../x" },
			[]string{wants(`"{{ pod.name }}"`)}, []string{"not an interface name"}},
		"a name that is too long": {func(p *realPod) { p.attachment.Pod.Name = "abcdefghijklmnop" },
			[]string{wants(`"{{ pod.name }}"`)}, []string{"1 to 15 characters"}},
		"another link of the pod": {func(p *realPod) { p.makeBridge("data0") }, []string{wants("data0")},
			[]string{`"data0"`, "the pod's own network"}},
		"altname of a bridge": {func(p *realPod) { p.makeBridge("own0", "data0") }, []string{wants("data0")},
			[]string{`"data0"`, "the pod's own network"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newRealLab(t, nil)
			l.uplink("up0")
			var plans []cnichain.Plan
			for i, chain := range test.chains {
				plans = append(plans, l.plan([]string{"first", "second"}[i], chain, l.shared("link", "up0")))
			}
			a := l.pod("a", plans...)
			test.prepare(a)
			before := l.state()
			a.refused(test.says...)
			l.expect(before)
			l.leases()
			l.empty()
		})
	}
}

func (p *realPod) altName(name string) {
	p.Helper()
	p.link("eth0", func(h *netlink.Handle, link netlink.Link) error { return h.LinkAddAltName(link, name) })
}

// The driver chooses interface names that are not yet in use in the pod.
func TestRealNamesGoRoundTaken(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	l := newRealLab(t, nil)
	l.uplink("up0")
	l.uplink("up1")
	a := l.pod("a", l.plan("first", realMacvlan, l.shared("link", "up0"), l.shared("link", "up1")),
		l.plan("second", wants("net4"), l.shared("link", "up0")))
	a.altName("net1")
	a.makeBridge("net3")
	before := l.state()
	a.add()
	a.has("net2 macvlan mtu=1400 up=true 10.1.0.2/24", "net3 bridge mtu=1500 up=false",
		"net4 macvlan mtu=1500 up=true 10.1.0.2/24",
		"net5 macvlan mtu=1400 up=true 10.1.0.3/24")
	a.del()
	l.expect(before)
	l.empty()
}

// Steps with the same network share host-local's leases; steps with different networks do not.
func TestRealIPAMDomains(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	chain := func(network string) string {
		return "\n- {name: link, type: macvlan, " + network +
			"config: {mode: bridge, ipam: {type: host-local, dataDir: /var/lib/leases, ranges: [[{subnet: " +
			"10.1.0.0/24}]]}}}"
	}
	for name, test := range map[string]struct {
		network string
		leases  []string
	}{
		"shared": {"network: lan, ", []string{"lan/10.1.0.2", "lan/10.1.0.3", "lan/10.1.0.4", "lan/10.1.0.5"}},
		"separate": {"", []string{"first.link/10.1.0.2", "first.link/10.1.0.3", "second.link/10.1.0.2",
			"second.link/10.1.0.3"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newRealLab(t, nil)
			l.uplink("up0")
			l.uplink("up1")
			first := l.plan("first", chain(test.network), l.shared("link", "up0"))
			second := l.plan("second", chain(test.network), l.shared("link", "up1"))
			a, b := l.pod("a", first, second), l.pod("b", first, second)
			before := l.state()
			l.atOnce(a.tryAdd, b.tryAdd)
			l.leases(test.leases...)
			l.atOnce(func() error { return a.tryDel() }, func() error { return b.tryDel() })
			l.expect(before)
			l.leases()
			l.empty()
		})
	}
}

// atOnce runs functions concurrently, as happens when several pods start or terminate at the same time.
func (l *realLab) atOnce(work ...func() error) {
	l.Helper()
	var wait sync.WaitGroup
	for _, do := range work {
		wait.Go(func() {
			if err := do(); err != nil {
				l.Error(err)
			}
		})
	}
	wait.Wait()
}

// If a step fails, the earlier steps and the partial work of the failed plugin are rolled back.
func TestRealFailuresLeaveNothing(t *testing.T) {
	if !onMachineWithOwn(t) {
		return
	}
	for plugin, kind := range realKinds() {
		for name, test := range map[string]struct{ old, changed, says string }{
			"no address left": {"{subnet: 10.1.0.0/24}", "{subnet: 10.1.0.0/24, rangeStart: 10.1.0.9, rangeEnd: " +
				"10.1.0.9}", "no IP addresses available"},
			"bad setting": {"{mtu: 1400}", `{mtu: 70000, mac: "02:00:00:00:00:88", promisc: true}`,
				"invalid argument"},
			"no such sysctl": {"{mtu: 1400}", `{mtu: 1400, sysctl: {net.ipv4.conf.IFNAME.nothing: "1"}}`, "nothing"},
			"bad address": {"host-local, dataDir: /var/lib/leases, ranges: [[{subnet: 10.1.0.0/24}]]",
				"static, addresses: [{address: nonsense}]", "nonsense"},
		} {
			t.Run(plugin+"/"+name, func(t *testing.T) {
				l := newRealLab(t, nil)
				device := kind.device(l)
				plan := l.plan("first", strings.ReplaceAll(kind.steps(plugin), test.old, test.changed), device)
				if name == "no address left" { // another pod has taken the address
					l.bridge("br9")
					other := strings.ReplaceAll(realKinds()["bridge"].steps("bridge"), test.old, test.changed)
					l.pod("other", l.plan("first", other, l.shared("link", "br9"))).add()
				}
				a := l.pod("a", plan)
				before := l.state()
				a.refused(test.says)
				l.expect(before)
				l.emptyBut("sandbox-other")
				l.wipe("/run/cni")
			})
		}
	}
}

// emptyBut is like empty, but ignores the record of one sandbox.
func (l *realLab) emptyBut(id string) {
	l.Helper()
	runner := executor.New(executor.Options{})
	attachments, _, err := l.chains.Load(runner)
	l.must(err)
	delete(attachments, id)
	if len(attachments) > 0 || len(runner.Leftovers()) > 0 {
		l.Errorf("the journal still has attachments %v and leftovers %v", attachments, runner.Leftovers())
	}
}

// An application may take the interface name just before the plugin does. The application's link is not touched.
func TestRealNameTakenMeanwhile(t *testing.T) {
	if !onMachineWithOwn(t) {
		return
	}
	kinds := realKinds()
	kinds["ptp"] = realKind{"", kinds["macvlan"].device}
	for plugin, kind := range kinds {
		t.Run(plugin+"/indexes differ", func(t *testing.T) { taken(newRealLab(t, &meddling{}), plugin, kind, 1000) })
		t.Run(plugin+"/indexes collide", func(t *testing.T) {
			l := newRealLab(t, &meddling{})
			taken(l, plugin, kind, 0)
		})
	}
}

// taken simulates an application that creates a veth with the interface name just before ADD. distance is the
// difference between the index of the veth's other end in the pod and the device's index on the host.
func taken(l *realLab, plugin string, kind realKind, distance int) {
	device := kind.device(l)
	a := l.pod("a", l.plan("first", kind.steps(plugin), device))
	before := l.state()
	var during []string
	l.executor.Exec.(*meddling).beforeAdd = func() {
		a.inside(func(h *netlink.Handle) error {
			attrs := netlink.LinkAttrs{Name: "own1", Index: device.Device.Index + distance}
			return h.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "net1"})
		})
		during = a.about("net1", "own1")
	}
	a.refused(plugin, "exist")
	l.expect(with(before, during...))
	l.leases()
	l.empty()
}

// meddling calls a function once, before the first ADD.
type meddling struct {
	executor.PluginExec
	beforeAdd func()
}

// Call implements executor.Exec.
func (m *meddling) Call(ctx context.Context, path string, stdin []byte, environ []string) (executor.CallOutput, error) {
	if do := m.beforeAdd; do != nil && slices.Contains(environ, "CNI_COMMAND=ADD") {
		m.beforeAdd = nil
		do()
	}
	return m.PluginExec.Call(ctx, path, stdin, environ)
}
