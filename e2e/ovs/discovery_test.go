package ovs

import (
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/dra-networking/dra-network-driver/discovery"
)

// facts returns a description of each of the named devices.
func (b *bench) facts(names ...string) (lines []string) {
	b.Helper()
	source, err := discovery.Host()
	b.must(err)
	defer source.Close()
	facts, err := discovery.Read(b.Context(), source)
	b.must(err)
	for _, problem := range facts.Problems {
		lines = append(lines, "! "+problem.String())
	}
	for i := range facts.Devices {
		d := &facts.Devices[i]
		if !slices.Contains(names, string(d.Interface)) {
			continue
		}
		line := string(d.Interface) + " " + d.Type
		for _, note := range []struct{ name, value string }{
			{"bridge", d.BridgeType}, {"master", string(d.Master)}, {"kind of master", d.MasterKind},
		} {
			if note.value != "" {
				line += " " + note.name + " " + note.value
			}
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

// busy returns the reason why a link is busy, or "" if it is not.
func (b *bench) busy(name string) string {
	b.Helper()
	source, err := discovery.Host()
	b.must(err)
	defer source.Close()
	uses, err := discovery.Busy(b.Context(), source, discovery.IfName(name))
	b.must(err)
	return uses[discovery.IfName(name)].Reason
}

// The kernel reports Open vSwitch bridges, internal ports and tunnels. It does not report Open vSwitch bonds, because
// only their members are ports on the datapath.
func TestDiscovery(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"m0", "m1", "m2"} {
		b.AddLink(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: name}})
	}
	b.vsctl("add-br", "br1", "--", "add-br", "br2", "--", "add-port", "br1", "internal0", "--", "set", "interface",
		"internal0", "type=internal", "--", "add-port", "br1", "m0", "--", "add-bond", "br2", "bond0", "m1", "m2",
		"--", "add-port", "br1", "patch1", "--", "set", "interface", "patch1", "type=patch", "options:peer=patch2",
		"--", "add-port", "br2", "patch2", "--", "set", "interface", "patch2", "type=patch", "options:peer=patch1")
	b.same("facts", []string{
		"br1 ovs-internal bridge ovs",
		"br2 ovs-internal bridge ovs",
		"internal0 ovs-internal bridge ovs",
		"m0 dummy master ovs-system kind of master openvswitch",
		"m1 dummy master ovs-system kind of master openvswitch",
		"m2 dummy master ovs-system kind of master openvswitch",
		"ovs-system ovs-datapath",
	}, b.facts("br1", "br2", "internal0", "m0", "m1", "m2", "ovs-system", "bond0", "patch1", "patch2"))
	for _, name := range []string{"m0", "m1"} {
		if reason := b.busy(name); !strings.Contains(reason, "ovs-system") {
			t.Errorf("reason that port %s is busy = %q, want ovs-system", name, reason)
		}
	}
	b.vsctl("del-port", "br1", "m0")
	if reason := b.busy("m0"); reason != "" {
		t.Errorf("the former port is still busy: %s", reason)
	}
	b.vsctl("del-br", "br1")
	b.same("facts without a bridge", []string{"br2 ovs-internal bridge ovs", "m0 dummy"},
		b.facts("br1", "internal0", "br2", "m0"))
}

// An uplink that is an Open vSwitch port cannot be moved into a pod, but its virtual functions can.
func TestUplinkAndItsFunctions(t *testing.T) {
	b := newBench(t)
	b.must(netlink.LinkSetUp(b.LinkOf(pf0)))
	pf := b.uplink(pf0)
	b.SetVFs(pf0, 0)
	b.SetVFs(pf0, 1)
	t.Cleanup(func() { b.SetVFs(pf0, 0) })
	vf := b.uplink(b.VF(pf0, 0))
	b.vsctl("add-br", "br1", "--", "add-port", "br1", pf)
	want := []string{pf + " pf master ovs-system kind of master openvswitch", vf + " vf"}
	slices.Sort(want)
	b.same("facts", want, b.facts(pf, vf))
	if reason := b.busy(pf); !strings.Contains(reason, "ovs-system") {
		t.Errorf("reason that the uplink is busy = %q, want ovs-system", reason)
	}
	if reason := b.busy(vf); reason != "" {
		t.Errorf("the virtual function is busy: %s", reason)
	}
	d := newDriver(b)
	p := d.prepare("vf", vf, `[{name: net, type: host-device, config: {}}]`, true)
	b.must(p.Add())
	if have := p.Links(); len(have) != 1 {
		t.Errorf("the pod has links %q, want only the function", have)
	}
	b.must(p.Del())
	if have := b.vsctl("list-ports", "br1"); have != pf {
		t.Errorf("the bridge has ports %q, want only the uplink", have)
	}
	b.LinkByName(vf)
}
