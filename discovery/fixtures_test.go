package discovery_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"

	"github.com/dra-networking/dra-network-driver/discovery"
)

var update = flag.Bool("update", false, "write the golden facts of the recordings in testdata")

// TestRecordings reads what a real kernel's sysfs said of a machine with two (emulated) igb cards, each a physical function,
// with no virtual functions; with four each; and with one of those in another network namespace and one with a userspace
// driver. Only sysfs was kept of that machine: netlink.json was made from the files of class/net, without default routes.
func TestRecordings(t *testing.T) {
	dirs, err := filepath.Glob("testdata/*/netlink.json")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("there are no recordings: %v", err)
	}
	for _, file := range dirs {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			facts := readRecording(t, open(t, dir))
			got, err := json.MarshalIndent(facts, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, '\n')
			golden := filepath.Join(dir, "facts.json")
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("facts; write them with -update if they are right (-want +got):\n%s", diff)
			}
			sources, err := open(t, dir).Sources()
			if err != nil {
				t.Fatal(err)
			}
			roundTrip(t, sources)
		})
	}
}

func open(t *testing.T, dir string) discovery.Recording {
	t.Helper()
	recording, err := discovery.OpenRecording(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	return recording
}

func readRecording(t *testing.T, recording discovery.Recording) discovery.Facts {
	t.Helper()
	sources, err := recording.Sources()
	if err != nil {
		t.Fatal(err)
	}
	facts, err := discovery.Read(t.Context(), sources)
	if err != nil {
		t.Fatal(err)
	}
	return facts
}

// roundTrip checks that a recording of the sources has their facts: written and opened again, all of them; and without
// addresses all but these.
func roundTrip(t *testing.T, sources discovery.Sources) {
	t.Helper()
	want, err := discovery.Read(t.Context(), sources)
	if err != nil {
		t.Fatal(err)
	}
	recording, err := discovery.Record(t.Context(), sources)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, readRecording(t, reopened(t, recording))); diff != "" {
		t.Errorf("facts of the recording (-want +got):\n%s", diff)
	}
	without := recording.WithoutAddresses()
	got := readRecording(t, reopened(t, without))
	if strings.Contains(summary(want), "enx") { // names change with the addresses in them
		return
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(discovery.Device{}, "MAC", "SwitchID")); diff != "" {
		t.Errorf("facts of the recording without addresses (-want +got):\n%s", diff)
	}
	for i := range want.Devices {
		if have := want.Devices[i].MAC; have != "" && have == got.Devices[i].MAC {
			t.Errorf("%s still has its address %s", want.Devices[i].Name, have)
		}
	}
	again, err := discovery.Record(t.Context(), sources)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(files(t, without), files(t, again.WithoutAddresses())); diff != "" {
		t.Errorf("another recording of the same is different:\n%s", diff)
	}
}

func files(t *testing.T, recording discovery.Recording) map[string][]byte {
	t.Helper()
	written, err := recording.Files()
	if err != nil {
		t.Fatal(err)
	}
	return written
}

// reopened is the recording written and opened again.
func reopened(t *testing.T, recording discovery.Recording) discovery.Recording {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files(t, recording) {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return open(t, dir)
}

// Nothing of an address is left, also not in names; what was equal is equal, and what is nobody's address stays.
func TestWithoutAddresses(t *testing.T) {
	h := withoutPCI()
	same := attrs(4, "bond0")
	same.HardwareAddr, same.AltNames = h.links[0].Attrs().HardwareAddr, []string{"alt0242ac110002", "another"}
	h.virtual(&netlink.Bond{LinkAttrs: same})
	zero := attrs(5, "tun0")
	zero.HardwareAddr = make([]byte, 6)
	h.virtual(&netlink.Dummy{LinkAttrs: zero})
	tunnel := attrs(6, "ipip0")
	tunnel.HardwareAddr = []byte{192, 0, 2, 7}
	h.virtual(&netlink.Dummy{LinkAttrs: tunnel})
	h.links[1].Attrs().PermHWAddr = []byte{2, 0, 0, 0, 0, 1} // so that no link may be given this one
	recording, err := discovery.Record(t.Context(), h.quickSources())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range readRecording(t, recording.WithoutAddresses()).Devices {
		got = append(got, string(d.Name)+" "+d.MAC+" "+strings.Join(d.AltNames, ","))
	}
	want := []string{
		"bond0 02:00:00:00:00:02 alt020000000002,another", "end0 02:00:00:00:00:04 ", "enx020000000002 02:00:00:00:00:02 ",
		"ipip0 02:00:00:06 ", "tun0 00:00:00:00:00:00 ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, content := range files(t, recording.WithoutAddresses()) {
		for _, secret := range []string{"0242ac110002", "02:42:ac", "192.0.2.7", "c0:00:02:07"} {
			if strings.Contains(string(content), secret) {
				t.Errorf("%s has %s", name, secret)
			}
		}
	}
	if !slices.ContainsFunc(recording.Netlink.Links, func(l discovery.RecordedLink) bool { return l.MAC == "02:42:ac:11:00:02" }) {
		t.Error("the recording itself was changed")
	}
}

// RDMA devices may be named after the card's GUID, which is made of its address; ids of switches often are, too.
func TestWithoutAddressesOfRDMADevicesAndSwitches(t *testing.T) {
	h := switchdev()
	h.files(h.real("0000:05:00.0")+"/infiniband/rocex0c42a1fffe4be5f4", "node_type=1: CA")
	recording, err := discovery.Record(t.Context(), h.quickSources())
	if err != nil {
		t.Fatal(err)
	}
	pf := byName(t, readRecording(t, recording.WithoutAddresses()), "enp5s0f0np0")
	if diff := cmp.Diff([]string{"rocex0200000000000008"}, pf.RDMADevices); diff != "" || pf.SwitchID != "0000000000000001" {
		t.Errorf("switch %q, RDMA devices (-want +got):\n%s", pf.SwitchID, diff)
	}
}
