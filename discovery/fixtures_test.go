package discovery_test

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
)

var update = flag.Bool("update", false, "write the golden facts of the recordings in testdata")

// TestRecordings reads a sysfs recorded from a real kernel on a machine with two (emulated) igb NICs, each of which is
// a physical function. The recordings were made without virtual functions, with four virtual functions each, and with
// one virtual function in another network namespace and one bound to a userspace driver. Only that machine's sysfs was
// recorded; netlink.json was derived from the files in class/net, without default routes. rxe-exclusive was recorded on
// Linux 7.3.4 with Soft RoCE on a veth, a macvlan and two virtual functions, one of which is a member of a bond. ovs
// was recorded on Linux 6.12 with Open vSwitch 3.5: two bridges with a physical function, a kernel bond, an Open
// vSwitch bond, an internal port and a tunnel. h100 and mi300x were composed: see discoverytest.GPUMachines.
func TestRecordings(t *testing.T) {
	dirs, err := filepath.Glob("testdata/*/netlink.json")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no recordings: %v", err)
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
				t.Errorf("wrong facts; if they are right, run with -update (-want +got):\n%s", diff)
			}
			sources, err := open(t, dir).Sources()
			if err != nil {
				t.Fatal(err)
			}
			roundTrip(t, sources)
		})
	}
}

// The recordings of composed machines match the generated machines. The files are meant for users who want to try out
// policies.
func TestComposedRecordings(t *testing.T) {
	for name, machine := range discoverytest.GPUMachines() {
		files, err := machine.Files()
		if err != nil {
			t.Fatal(err)
		}
		for file, got := range files {
			path := filepath.Join("testdata", name, file)
			if *update {
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
					os.WriteFile(path, got, 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s is out of date; run with -update to write it (-want +got):\n%s", path, diff)
			}
		}
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

// roundTrip checks that a recording of the sources still has the same facts after being written and reopened. If the
// addresses were removed, facts about addresses may differ.
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
	if strings.Contains(summary(want), "enx") { // names that contain addresses change
		return
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(discovery.Device{}, "MAC", "SwitchID", "RDMAPort.GUID"),
		cmpopts.IgnoreFields(discovery.VFSettings{}, "MAC")); diff != "" {
		t.Errorf("facts of the recording without addresses (-want +got):\n%s", diff)
	}
	for i := range want.Devices {
		if have := want.Devices[i].MAC; have != "" && have == got.Devices[i].MAC {
			t.Errorf("the recording of %s still contains its address %s", want.Devices[i].Name, have)
		}
		if guid := want.Devices[i].RDMAPort.GUID; guid != "" && guid == got.Devices[i].RDMAPort.GUID {
			t.Errorf("the recording of %s still contains its port GUID %s", want.Devices[i].Name, guid)
		}
		if set := want.Devices[i].Settings; set != nil && set.MAC != "" && set.MAC == got.Devices[i].Settings.MAC {
			t.Errorf("the recording of %s still contains the configured address %s", want.Devices[i].Name, set.MAC)
		}
	}
	again, err := discovery.Record(t.Context(), sources)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(files(t, without), files(t, again.WithoutAddresses())); diff != "" {
		t.Errorf("a second recording of the same machine differs:\n%s", diff)
	}
}

func files(t *testing.T, recording discovery.Recording) map[string]string {
	t.Helper()
	written, err := recording.Files()
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for name, content := range written {
		texts[name] = string(content)
	}
	return texts
}

// reopened writes the recording and returns the result of opening it again.
func reopened(t *testing.T, recording discovery.Recording) discovery.Recording {
	t.Helper()
	dir := t.TempDir()
	if err := recording.Write(dir); err != nil {
		t.Fatal(err)
	}
	return open(t, dir)
}

// Addresses are completely removed, even from names. Equal addresses stay equal, and other text is kept.
func TestWithoutAddresses(t *testing.T) {
	h := discoverytest.WithoutPCI()
	h.Virtual(discovery.RecordedLink{Name: "bond0", Kind: "bond", MAC: h.Link("enx0242ac110002").MAC,
		AltNames: []string{"alt0242ac110002", "another"}})
	h.Virtual(discovery.RecordedLink{Name: "tun0", Kind: "dummy", MAC: "00:00:00:00:00:00"})
	h.Virtual(discovery.RecordedLink{Name: "ipip0", Kind: "dummy", MAC: "c0:00:02:07"})
	sources := h.Sources()
	rawLink(sources, "end0").PermHWAddr = []byte{2, 0, 0, 0, 0, 1} // this address must not be assigned to any link
	recording, err := discovery.Record(t.Context(), sources)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range readRecording(t, recording.WithoutAddresses()).Devices {
		got = append(got, string(d.Name)+" "+d.MAC+" "+strings.Join(d.AltNames, ","))
	}
	want := []string{
		"bond0 02:00:00:00:00:02 alt020000000002,another", "end0 02:00:00:00:00:04 ", "enx020000000002 " +
			"02:00:00:00:00:02 ",
		"ipip0 02:00:00:06 ", "tun0 00:00:00:00:00:00 ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, content := range files(t, recording.WithoutAddresses()) {
		for _, secret := range []string{"0242ac110002", "02:42:ac", "192.0.2.7", "c0:00:02:07"} {
			if strings.Contains(content, secret) {
				t.Errorf("%s contains the secret %s", name, secret)
			}
		}
	}
	if !slices.ContainsFunc(recording.Netlink.Links,
		func(l discovery.RecordedLink) bool { return l.MAC == "02:42:ac:11:00:02" }) {
		t.Error("the recording itself was changed")
	}
}

// RDMA devices may be named after the NIC's GUID, which contains the NIC's address; switch IDs often contain this
// address, too.
func TestWithoutAddressesOfRDMADevicesAndSwitches(t *testing.T) {
	h := discoverytest.Switchdev()
	h.RDMA("0000:05:00.0", "rocex0c42a1fffe4be5f4")
	h.RDMAPort("0000:05:00.0", "rocex0c42a1fffe4be5f4", "link_layer=InfiniBand", "state=4: ACTIVE",
		"gids/0=fec0:0000:0000:0007:0c42:a1ff:fe4b:e5f4", "pkeys/0=0x8001")
	recording, err := discovery.Record(t.Context(), h.Sources())
	if err != nil {
		t.Fatal(err)
	}
	pf := byName(t, readRecording(t, recording.WithoutAddresses()), "enp5s0f0np0")
	if diff := cmp.Diff([]string{"rocex0200000000000009"}, pf.RDMADevices); diff != "" ||
		pf.SwitchID != "0000000000000001" {
		t.Errorf("switch ID = %q, RDMA devices (-want +got):\n%s", pf.SwitchID, diff)
	}
	want := discovery.RDMAPort{GUID: "0x0200000000000009", State: "active", PKeys: []string{"0x8001"}}
	if diff := cmp.Diff(want, pf.RDMAPort); diff != "" {
		t.Errorf("port, whose GUID is in the name of its RDMA device (-want +got):\n%s", diff)
	}
	for name, content := range files(t, recording.WithoutAddresses()) {
		if strings.Contains(content, "e5f4") {
			t.Errorf("%s still contains the GUID", name)
		}
	}
}
