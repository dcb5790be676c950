package ovs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	testbench "github.com/dra-networking/dra-network-driver/e2e/internal/bench"
)

// onBridge returns the steps of a topology with a single ovs step, which assigns the address 10.9.0.1x.
func onBridge(settings string, address int) string {
	return fmt.Sprintf(`
- name: net
  type: ovs
  config: {%s ipam: {type: host-local, subnet: 10.9.0.0/24, rangeStart: 10.9.0.1%[2]d, rangeEnd: 10.9.0.1%[2]d}}
`, settings, address)
}

// tuned is an additional step that runs the tuning plugin.
const tuned = `- {name: tune, type: tuning, dependOn: [net], config: {sysctl: {net.ipv4.conf.net1.arp_filter: "1"}}}
`

// Several pods share a bridge. Each pod is on the VLAN that its topology specifies.
func TestPodsOnABridge(t *testing.T) {
	b := newBench(t)
	d := newDriver(b)
	b.vsctl("add-br", "br1")
	var pods []*pod
	for i, settings := range []string{
		"vlan: 100, mtu: 1400,", "vlan: 100,", "vlan: 200,", "trunk: [{id: 5}, {minID: 7, maxID: 8}],",
	} {
		p := d.prepare(fmt.Sprintf("p%d", i), "br1", onBridge(settings, i+1)+tuned, false)
		b.must(p.Add())
		pods = append(pods, p)
	}
	b.same("links of a pod", []string{"net1 veth mtu 1400 up true"}, pods[0].Links())
	var vlans []string
	for _, line := range b.ports("br1") {
		_, text, _ := strings.Cut(line, " ")
		vlans = append(vlans, text)
	}
	if have := strings.Join(vlans, ", "); len(vlans) != 4 || strings.Count(have, "100") != 2 ||
		!strings.Contains(have, "200") || !strings.Contains(have, "5 7 8") {
		t.Errorf("ports have unexpected VLANs %q", have)
	}
	pods[0].Reaches(pods[1], "10.9.0.12")
	pods[0].Isolated(pods[2], "10.9.0.13")
	pods[0].Isolated(pods[3], "10.9.0.14")
	for _, p := range pods {
		b.must(p.Del())
		b.must(p.Del())
	}
	b.same("ports", nil, b.ports("br1"))
	b.emptiness()
}

// The driver passes the bridge name to the plugin. If the bridge does not exist, the error contains its name.
func TestBridgeThatIsNotThere(t *testing.T) {
	b := newBench(t)
	d := newDriver(b)
	b.vsctl("add-br", "br1")
	p := d.prepare("p", "br1", onBridge("", 1), false)
	b.vsctl("del-br", "br1")
	if err := p.Add(); err == nil || !strings.Contains(err.Error(), "br1") {
		t.Errorf("ADD to a missing bridge returned %v, want an error that names the bridge", err)
	}
	b.emptiness()
}

// If a driver is killed before or after any commit to its journal, the next driver cleans up completely.
func TestKills(t *testing.T) {
	b := newBench(t)
	b.vsctl("add-br", "br1")
	for commits, survived := 0, false; !survived; commits++ {
		d := newDriver(b)
		d.RestartUntil(commits)
		p := d.prepare(fmt.Sprintf("k%d", commits), "br1", onBridge("vlan: 100,", 1), false)
		survived = testbench.Survives(func() {
			p.Attach()
			p.Detach()
		})
		d.Restart()
		for _, left := range d.Left {
			b.must(d.Executor.Del(t.Context(), left))
		}
		b.same("ports", nil, b.ports("br1"))
		b.same("leftovers", nil, d.Leftovers())
		b.emptiness()
		if t.Failed() {
			t.Fatalf("the driver was killed after only %d commits", commits)
		}
	}
}

// Open vSwitch crashes and restarts while pods use it. The kernel keeps switching packets, and the pods leave nothing
// behind when they terminate.
func TestRestart(t *testing.T) {
	b := newBench(t)
	d := newDriver(b)
	b.vsctl("add-br", "br1")
	left := d.prepare("left", "br1", onBridge("vlan: 100,", 1), false)
	right := d.prepare("right", "br1", onBridge("vlan: 100,", 2), false)
	gone := d.prepare("gone", "br1", onBridge("vlan: 100,", 3), false)
	for _, p := range []*pod{left, right, gone} {
		b.must(p.Add())
	}
	left.Reaches(right, "10.9.0.12")
	b.kill(daemon)
	b.kill(server)
	if err := right.Del(); err == nil || !strings.Contains(err.Error(), "ovsdb") {
		t.Errorf("DEL without Open vSwitch returned %v, want an error that names ovsdb", err)
	}
	if err := d.prepare("late", "br1", onBridge("", 4), false).Add(); err == nil {
		t.Error("ADD succeeded while Open vSwitch was down")
	}
	gone.Destroy()
	b.startServer()
	b.startDaemon()
	other := d.prepare("other", "br1", onBridge("vlan: 100,", 5), false)
	b.must(other.Add())
	left.Reaches(other, "10.9.0.15")
	for _, p := range []*pod{left, right, gone, other} {
		b.must(p.Del())
	}
	b.eventually("bridge without ports", func() error {
		if ports := b.ports("br1"); len(ports) > 0 {
			return fmt.Errorf("the bridge has the ports %q", ports)
		}
		return nil
	})
	b.same("leftovers", nil, d.Leftovers())
	b.emptiness()
}

// A bridge is deleted while pods use it. The pods can still terminate, and their addresses are released. Steps that the
// plugin cannot roll back are reported, and are rolled back once a bridge with the same name exists again.
func TestBridgeIsDeleted(t *testing.T) {
	b := newBench(t)
	d := newDriver(b)
	b.vsctl("add-br", "br1")
	p := d.prepare("p", "br1", onBridge("", 1), false)
	b.must(p.Add())
	b.vsctl("del-br", "br1")
	b.same("facts", nil, b.facts("br1"))
	b.eventually("end of attempts", func() error {
		err := p.Del()
		if err != nil && !strings.Contains(err.Error(), "br1") {
			b.Fatalf("DEL did not report which bridge is missing: %v", err)
		}
		return err
	})
	b.same("links of the pod", nil, p.Links())
	if addresses, err := filepath.Glob(state + "/networks/*/10.9.*"); err != nil || len(addresses) > 0 {
		t.Errorf("addresses are still assigned: %q, %v", addresses, err)
	}
	if leftovers := d.Leftovers(); len(leftovers) != 1 || !strings.Contains(leftovers[0], "br1") {
		t.Fatalf("leftovers are %q, want one that names the bridge", leftovers)
	}
	key := d.Executor.Leftovers()[0].Key
	if err := d.Executor.Retry(t.Context(), key); err == nil {
		t.Error("the pod's leftover was rolled back although the bridge is missing")
	}
	b.vsctl("add-br", "br1")
	b.must(d.Executor.Retry(t.Context(), key))
	b.same("leftovers", nil, d.Leftovers())
	b.emptiness()
}

// The plugin needs the database socket, which its schema declares. If the socket is missing, the error contains its
// path.
func TestSocketIsMissing(t *testing.T) {
	b := newBench(t)
	d := newDriver(b)
	b.vsctl("add-br", "br1")
	p := d.prepare("p", "br1", onBridge("", 1), false)
	b.must(os.Rename(runDir+"/db.sock", runDir+"/other.sock"))
	if err := p.Add(); err == nil || !strings.Contains(err.Error(), "db.sock") {
		t.Errorf("ADD without the socket returned %v, want an error that names the socket", err)
	}
	b.must(os.Rename(runDir+"/other.sock", runDir+"/db.sock"))
	b.must(p.Add())
	b.must(p.Del())
	b.emptiness()
}
