package publish

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/dra-networking/dra-network-driver/cnichain/journal"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
)

// Once an interface has had a name for a while, or a claim holds the device, the name is kept until the next boot. The
// names of virtual functions follow the name of their physical function.
func TestNamesAreKeptForOneBoot(t *testing.T) {
	f := newFixture(t)
	var m *deviceMemory
	start := func(boot string) {
		var err error
		m, _, err = loadDeviceMemory(f.db, boot, f.clock)
		f.must(err)
	}
	read := func(pf string, inUse ...discovery.Device) string {
		facts := discovery.Facts{Devices: []discovery.Device{
			{Name: discovery.IfName(pf), Interface: discovery.IfName(pf), Type: discovery.TypePF,
				PCIAddress: "0000:01:00.0"},
			{Name: discovery.IfName(pf + "v0"), Type: discovery.TypeVF, PCIAddress: "0000:01:00.1",
				PFAddress: "0000:01:00.0", PFName: discovery.IfName(pf)},
		}}
		facts = m.restore(facts).With(inUse...)
		f.must(m.keep(facts, inUse, nil))
		var names []string
		for _, device := range facts.Devices {
			names = append(names, string(device.Name))
		}
		return strings.Join(names, " ")
	}
	start("boot-1")
	check := func(pf, want string, inUse ...discovery.Device) {
		t.Helper()
		if got := read(pf, inUse...); got != want {
			t.Errorf("interface %s: got devices %s, want %s", pf, got, want)
		}
	}
	check("eth0", "eth0 eth0v0") // until udev renames it
	check("ens1", "ens1 ens1v0")
	f.clock.Step(settleTime)
	check("ens1", "ens1 ens1v0")
	check("lan", "ens1 ens1v0") // settled
	start("boot-1")             // another driver process
	check("lan", "ens1 ens1v0")
	start("boot-2")
	check("lan", "lan lanv0")
	held := discovery.Device{Name: "old0v0", Type: discovery.TypeVF, PCIAddress: "0000:01:00.1",
		PFAddress: "0000:01:00.0", PFName: "old0"}
	check("lan", "old0 old0v0", held)
	check("lan", "old0 old0v0") // even after the release
}

// A link reports no speed while it is down or returning to the host. Neither this nor a driver restart or a reboot may
// change the published speed.
func TestSpeedsAreRemembered(t *testing.T) {
	f := newFixture(t)
	boots := 0
	read := func(speed int) int {
		boots++
		m, _, err := loadDeviceMemory(f.db, string(rune('a'+boots/2)), f.clock)
		f.must(err)
		facts := m.restore(discovery.Facts{Devices: []discovery.Device{{Name: "eth1", Type: discovery.TypeNIC,
			LinkSpeed: speed}}})
		f.must(m.keep(facts, nil, nil))
		return facts.Devices[0].LinkSpeed
	}
	for _, step := range []struct{ read, want int }{{0, 0}, {25000, 25000}, {0, 25000}, {10000, 10000}, {0, 10000}} {
		if got := read(step.read); got != step.want {
			t.Errorf("reading %d: got speed %d, want %d", step.read, got, step.want)
		}
	}
}

// If nothing changes, the journal is not written.
func TestMemoryWritesChangesOnly(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Unix(1000, 0))
	opened, err := journal.Open(filepath.Join(t.TempDir(), "journal.db"), testingclock.NewFakeClock(clock.Now()))
	if err != nil {
		t.Fatal(err)
	}
	m, _, err := loadDeviceMemory(opened.DB, "boot", clock)
	if err != nil {
		t.Fatal(err)
	}
	facts, err := discovery.Read(context.Background(), discoverytest.ReferenceNode().Sources())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := m.keep(facts, nil, nil); err != nil {
			t.Fatal(err)
		}
		clock.Step(settleTime)
	}
	if err := opened.Close(); err != nil {
		t.Fatal(err)
	}
	if err := m.keep(facts, nil, nil); err != nil {
		t.Errorf("unchanged facts were written again: %v", err)
	}
	facts.Devices[0].LinkSpeed, facts.Devices[0].Type = 1, discovery.TypeNIC
	if err := m.keep(facts, nil, nil); err == nil {
		t.Error("changed facts were not written")
	}
}
