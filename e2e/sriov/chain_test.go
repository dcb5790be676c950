package sriov

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"

	testbench "github.com/dra-networking/dra-network-driver/e2e/internal/bench"
)

// oneStep returns the steps of a topology with one device and an address.
func oneStep(cniType, settings string, host int) string {
	return fmt.Sprintf(
		`[{name: nic, type: %s, config: {%s ipam: {type: static, addresses: [{address: 10.9.0.%d/24}]}}}]`, cniType,
		settings, host,
	)
}

// A link is found by its PCI address, regardless of its name.
func TestHostDeviceByPCIAddress(t *testing.T) {
	b := newBench(t, 2)
	d := newDriver(b)
	before := b.functionState()
	left := d.attach("left", oneStep("host-device", "", 1), function{"nic", pf0, 0})
	right := d.attach("right", oneStep("host-device", "", 2), function{"nic", pf1, 1})
	left.Reaches(right, "10.9.0.2")
	left.Detach()
	right.Detach()
	b.expect(before)
}

// The settings that the sriov plugin applies through the physical functions affect traffic, and are reset afterwards.
func TestSRIOVSettingsAreEnforced(t *testing.T) {
	b := newBench(t, 3)
	d := newDriver(b)
	before := b.functionState()
	const settings = `vlan: %d, vlanQoS: 3, spoofchk: "on", trust: "on", max_tx_rate: 200,`
	a := d.attach("a", oneStep("sriov", fmt.Sprintf(settings, 100), 1), function{"nic", pf0, 0})
	same := d.attach("same", oneStep("sriov", fmt.Sprintf(settings, 100), 2), function{"nic", pf1, 0})
	other := d.attach("other", oneStep("sriov", fmt.Sprintf(settings, 200)+`mac: "02:00:00:00:00:0c",`, 3),
		function{"nic", pf1, 1})
	none := d.attach("none", oneStep("sriov", "", 4), function{"nic", pf0, 1})
	for _, want := range []struct {
		pf    string
		index int
		text  string
	}{
		{pf0, 0, "vlan 100 qos 3 spoofchk true trust true rate 200"},
		{pf1, 0, "vlan 100 qos 3 spoofchk true trust true rate 200"},
		{pf1, 1, "vlan 200 qos 3 spoofchk true trust true rate 200"},
		{pf0, 1, "vlan 0 qos 0 spoofchk true trust false rate 0"},
	} {
		if have := b.settings(want.pf, want.index); have != want.text {
			t.Errorf("settings of virtual function %d of %s = %q, want %q", want.index, want.pf, have, want.text)
		}
	}
	if mac := b.info(pf1, 1).Mac.String(); mac != "02:00:00:00:00:0c" {
		t.Errorf("MAC address of the function = %s, want 02:00:00:00:00:0c", mac)
	}
	t.Logf("within a VLAN: %s", a.Reaches(same, "10.9.0.2"))
	a.Isolated(other, "10.9.0.3")
	a.Isolated(none, "10.9.0.4")
	b.must(netlink.LinkSetVfVlan(b.LinkOf(pf1), 1, 100)) // checks that the VLAN was what isolated them
	a.Reaches(other, "10.9.0.3")
	b.must(netlink.LinkSetVfVlan(b.LinkOf(pf1), 1, 200))
	for _, p := range []*pod{a, same, other, none} {
		p.Detach()
	}
	b.expect(before)
	b.empty()
}

func TestSpoofCheck(t *testing.T) {
	b := newBench(t, 2)
	d := newDriver(b)
	before := b.functionState()
	honest := d.attach("honest", oneStep("sriov", `spoofchk: "on",`, 1), function{"nic", pf0, 0})
	free := d.attach("free", oneStep("sriov", `spoofchk: "off", trust: "on",`, 2), function{"nic", pf0, 1})
	witness := d.attach("witness", oneStep("sriov", "", 3), function{"nic", pf1, 0})
	honest.Reaches(witness, "10.9.0.3")
	free.Reaches(witness, "10.9.0.3")
	if passed, err := forged(free, witness, "net1"); err != nil || !passed {
		t.Errorf("without spoofchk, no frame with a foreign source address arrived: %v", err)
	}
	cheated, err := forged(honest, witness, "net1")
	b.must(err)
	for _, p := range []*pod{honest, free, witness} {
		p.Detach()
	}
	b.expect(before)
	b.empty()
	if cheated {
		t.Skip("this NIC accepts the setting but does not enforce it, like QEMU's: a frame with a foreign address " +
			"came through")
	}
}

const bondOfTwo = `
- {name: left, type: sriov, config: {trust: "on", spoofchk: "off"}}
- {name: right, type: sriov, config: {trust: "on", spoofchk: "off"}}
- name: both
  type: bond
  dependOn: [left, right]
  ifName: bond0
  config:
    linksInContainer: true
    links: [{name: "{{ left.interfaceName }}"}, {name: "{{ right.interfaceName }}"}]
    mode: active-backup
    miimon: "100"
    failOverMac: 1
- {name: red, type: vlan, dependOn: [both], ifName: red, config: {master: "{{ both.interfaceName }}", linkInContainer: true, vlanId: 5, ipam: {type: static, addresses: [{address: 10.5.0.%[1]d/24}]}}}
- {name: blue, type: vlan, dependOn: [both], ifName: blue, config: {master: "{{ both.interfaceName }}", linkInContainer: true, vlanId: 6, ipam: {type: static, addresses: [{address: 10.6.0.%[1]d/24}]}}}
- {name: tune, type: tuning, dependOn: [red], config: {mtu: 1400}}
`

// This is the main use case in the published design: one virtual function on each of two NICs, bonded, with VLANs on
// top. Traffic continues when one NIC loses its link.
func TestBondSurvivesTheLossOfACard(t *testing.T) {
	b := newBench(t, 2)
	d := newDriver(b)
	before := b.functionState()
	var pods []*pod
	for i := range 2 {
		pods = append(pods, d.attach(fmt.Sprintf("bond%d", i), fmt.Sprintf(bondOfTwo, i+1),
			function{"left", pf0, i}, function{"right", pf1, i}))
	}
	want := []string{
		"blue vlan mtu 1500 up true", "bond0 bond mtu 1500 up true", "net1 device mtu 1500 up true",
		"net2 device mtu 1500 up true", "red vlan mtu 1400 up true",
	}
	for _, p := range pods {
		if diff := cmp.Diff(want, p.Links()); diff != "" {
			t.Errorf("links of %s (-want +have):\n%s", p.Path, diff)
		}
	}
	talk := func(when string) {
		t.Helper()
		t.Logf("%s: red after %s, blue after %s", when, pods[0].Reaches(pods[1], "10.5.0.2"),
			pods[0].Reaches(pods[1], "10.6.0.2"))
	}
	talk("both NICs")
	for _, lost := range []string{pf0, pf1} {
		former := active(pods[0])
		b.must(netlink.LinkSetDown(b.LinkOf(lost)))
		talk("without " + lost)
		t.Logf("the active member was %s and is now %s", former, active(pods[0]))
		b.must(netlink.LinkSetUp(b.LinkOf(lost)))
		talk("with both again")
	}
	for _, p := range pods {
		p.Detach()
	}
	b.expect(before)
	b.empty()
}

// The bond and its VLANs disappear together with the namespace. The members remain, still with the bond's address.
func TestBondWhoseNamespaceIsDestroyed(t *testing.T) {
	b := newBench(t, 1)
	d := newDriver(b)
	before := b.functionState()
	steps := strings.Replace(fmt.Sprintf(bondOfTwo, 1), "failOverMac: 1", "failOverMac: 0", 1)
	p := d.attach("bond", steps, function{"left", pf0, 0}, function{"right", pf1, 0})
	p.Destroy()
	b.eventually("links that the kernel has put on the host", func() error {
		for _, pf := range []string{pf0, pf1} {
			if _, err := testbench.FindLink(b.VF(pf, 0)); err != nil {
				return err
			}
		}
		return nil
	})
	if left, right := b.LinkOf(b.VF(pf0, 0)).Attrs().Name, b.LinkOf(b.VF(pf1, 0)).Attrs().Name; left != "net1" ||
		right != "net2" {
		t.Errorf("the members returned to the host as %s and %s, want net1 and net2", left, right)
	}
	b.eventually("DEL that succeeds", p.Del)
	if left := d.Leftovers(); len(left) > 0 {
		t.Errorf("unexpected leftovers: %q", left)
	}
	b.expect(before)
}

// Virtual functions on one NIC share the channel between their drivers and the NIC. Many concurrent attachments must
// nevertheless work.
func TestManyAtOnce(t *testing.T) {
	b := newBench(t, 4)
	d := newDriver(b)
	before := b.functionState()
	var pods []*pod
	for i := range 8 {
		pf := []string{pf0, pf1}[i%2]
		pods = append(pods, d.pod(fmt.Sprintf("many%d", i), oneStep("sriov", `vlan: 100, trust: "on",`, i+1),
			function{"nic", pf, i / 2}))
	}
	all := func(do func(*pod) error) {
		t.Helper()
		var group errgroup.Group
		for _, p := range pods {
			group.Go(func() error { return do(p) })
		}
		b.must(group.Wait())
	}
	all((*pod).Add)
	for i, p := range pods[1:] {
		pods[0].Reaches(p, fmt.Sprintf("10.9.0.%d", i+2))
	}
	all((*pod).Del)
	b.expect(before)
	b.empty()
}

// active returns the name of the link that carries the bond's traffic.
func active(p *pod) (name string) {
	p.WithLink("bond0", func(link netlink.Link) error {
		bond, ok := link.(*netlink.Bond)
		if !ok || bond.ActiveSlave <= 0 {
			name = "none"
			return nil
		}
		member, err := netlink.LinkByIndex(bond.ActiveSlave)
		if err == nil {
			name = member.Attrs().Name
		}
		return err
	})
	return name
}

// soil changes every property of a virtual function that a malicious tenant or a careless administrator could change.
func (b *bench) soil(p *pod, pf string, index int) {
	b.Helper()
	link := b.LinkOf(pf)
	b.must(netlink.LinkSetVfVlan(link, index, 77))
	b.must(netlink.LinkSetVfTrust(link, index, true))
	b.must(netlink.LinkSetVfSpoofchk(link, index, false))
	b.must(netlink.LinkSetVfTxRate(link, index, 300))
	b.must(netlink.LinkSetVfHardwareAddr(link, index, net.HardwareAddr{2, 0, 0, 0, 0, 0x77}))
	p.WithLink("net1",
		netlink.LinkSetDown,
		func(l netlink.Link) error {
			return netlink.LinkSetHardwareAddr(l, net.HardwareAddr{2, 0, 0, 0, 0, 0x77})
		},
		func(l netlink.Link) error { return netlink.LinkSetMTU(l, 9000) },
		func(l netlink.Link) error { return netlink.LinkSetAlias(l, "mine") },
		func(l netlink.Link) error { return netlink.LinkAddAltName(l, "also-mine") },
		func(l netlink.Link) error { return netlink.LinkSetName(l, "mine") },
	)
}

// Regardless of how a function was changed, and even if the plugin's DEL has no effect, the next tenant gets the
// function in its initial state.
func TestDirtyFunctionComesHomeClean(t *testing.T) {
	for _, cniType := range []string{"host-device", "sriov"} {
		for name, end := range map[string]func(*pod){"pod lives": func(*pod) {},
			"namespace destroyed": (*pod).Destroy} {
			t.Run(cniType+" "+name, func(t *testing.T) {
				b := newBench(t, 1)
				d := newDriver(b)
				before := b.functionState()
				p := d.attach(cniType[:4]+name[:3], oneStep(cniType, "", 1), function{"nic", pf0, 0})
				b.soil(p, pf0, 0)
				end(p)
				b.eventually("DEL that succeeds", p.Del)
				if left := d.Leftovers(); len(left) > 0 {
					t.Errorf("unexpected leftovers: %q", left)
				}
				b.expect(before)
			})
		}
	}
}

// A tenant cannot prevent the next tenant from changing the function's address. The igb driver rejects a change to the
// address of a virtual function whose address was set through the physical function. The sriov plugin does that on
// every DEL, and an earlier user may have done it before the first allocation.
func TestNextTenantMayChangeItsAddress(t *testing.T) {
	for name, test := range map[string]struct {
		cniType string
		dirty   bool
	}{
		"host-device":            {cniType: "host-device"},
		"sriov":                  {cniType: "sriov"},
		"host-device, set once":  {cniType: "host-device", dirty: true},
		"sriov, set once before": {cniType: "sriov", dirty: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 2)
			d := newDriver(b)
			before := b.functionState()
			functions := []function{{"nic", pf0, 0}, {"nic", pf0, 1}, {"nic", pf1, 0}, {"nic", pf1, 1}}
			if test.dirty {
				for _, f := range functions {
					b.must(netlink.LinkSetVfHardwareAddr(b.LinkOf(f.pf), f.index, b.info(f.pf, f.index).Mac))
				}
				b.expect(before) // the state is not visible
			}
			for round := range 2 {
				var tenants []*pod
				for n, f := range functions {
					p := d.attach(fmt.Sprintf("own%d%d", round, n), oneStep(test.cniType, "", n+1), f)
					p.WithLink("net1", func(l netlink.Link) error {
						return netlink.LinkSetHardwareAddr(l, net.HardwareAddr{2, 0, 0, 0, byte(round), byte(n)})
					})
					tenants = append(tenants, p)
				}
				for _, p := range tenants {
					if err := p.Del(); err != nil { // the sriov plugin cannot restore the address
						t.Logf("the first DEL: %v", err)
						p.Detach()
					}
				}
				b.expect(before)
			}
		})
	}
}

// Chains that change the addresses of untrusted functions work for successive tenants.
func TestChainsThatChangeAddressesInTurn(t *testing.T) {
	for name, test := range map[string]struct {
		steps     string
		functions []function
	}{
		"tuning": {
			steps:     `[{name: nic, type: sriov}, {name: tune, type: tuning, dependOn: [nic], config: {mac: "02:00:00:00:00:0%d"}}]`,
			functions: []function{{"nic", pf0, 0}},
		},
		"bond": {
			steps: `[{name: left, type: sriov}, {name: right, type: sriov}, {name: both, type: bond, dependOn: [left, right], ifName: bond%d,
  config: {mode: active-backup, linksInContainer: true, links: [{name: "{{ left.interfaceName }}"}, {name: "{{ right.interfaceName }}"}],
    miimon: "100", failOverMac: 0}}]`,
			functions: []function{{"left", pf0, 0}, {"right", pf1, 0}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 1)
			d := newDriver(b)
			before := b.functionState()
			for i := range 2 {
				p := d.attach(fmt.Sprintf("turn%d", i), fmt.Sprintf(test.steps, i+1), test.functions...)
				for range 3 { // the plugin cannot restore the address while the function has a different one
					if err := p.Del(); err != nil {
						t.Logf("DEL: %v", err)
					}
				}
				p.Detach()
				b.expect(before)
			}
			b.empty()
		})
	}
}

// If a virtual function has no link because it is bound to a userspace driver, a step that does not declare a driver
// rejects it, whereas a step that declares a driver leaves it bound. The plugin's DEL fails while the pod exists, but
// resets all settings that the plugin applied.
func TestFunctionWithoutLink(t *testing.T) {
	b := newBench(t, 1)
	d := newDriver(b)
	b.bind(b.VF(pf0, 0), "vfio-pci")
	before := b.functionState()
	if _, err := d.Plan("link", `[{name: nic, type: sriov}]`, device("nic", b.VF(pf0, 0))); err == nil ||
		!strings.Contains(err.Error(), "has no interface") {
		t.Errorf("planning a step that needs a link returned %v, want has no interface", err)
	}
	p := d.attach("vfio", `[{name: nic, type: sriov, driver: vfio-pci, config: {vlan: 77, trust: "on"}}]`,
		function{"nic", pf0, 0})
	if have, want := b.settings(pf0, 0), "vlan 77 qos 0 spoofchk true trust true rate 0"; have != want {
		t.Errorf("settings of the function = %q, want %q", have, want)
	}
	p.Detach()
	b.expect(before)
}
