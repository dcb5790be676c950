package main

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
)

// runFacts runs "netdra facts".
func runFacts(t *testing.T, arguments ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), osdeps.Deps{}, printer.Streams{Out: &out, Err: &errs},
		append([]string{"facts"}, arguments...)...)
	return code, out.String(), errs.String()
}

// factsAs runs "netdra facts" and parses its output.
func factsAs(t *testing.T, arguments ...string) discovery.Facts {
	t.Helper()
	code, stdout, stderr := runFacts(t, append(arguments, "-o", "json")...)
	var facts discovery.Facts
	if err := json.Unmarshal([]byte(stdout), &facts); err != nil || code != exit.OK {
		t.Fatalf("exit status %d: %v\n%s%s", code, err, stdout, stderr)
	}
	return facts
}

// A recording reproduces the facts of the machine, except for addresses that were not recorded.
func TestFactsRoundTripOnMachine(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	mac := net.HardwareAddr{0x02, 0x42, 0xac, 0x11, 0x00, 0x02}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
	if err := netlink.LinkAdd(bridge); err != nil {
		t.Fatal(err)
	}
	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: "enx0242ac110002", MasterIndex: bridge.Index, HardwareAddr: mac, MTU: 1400},
		PeerName:  "far0"}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	far, err := netlink.LinkByName("far0")
	if err == nil {
		attrs := netlink.LinkAttrs{Name: "mv0", ParentIndex: far.Attrs().Index}
		err = netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_PRIVATE})
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"br0", "enx0242ac110002", "far0"} {
		if err := setUp(name); err != nil {
			t.Fatal(err)
		}
	}
	_, all, _ := net.ParseCIDR("0.0.0.0/0")
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: bridge.Index, Scope: netlink.SCOPE_LINK,
		Dst: all}); err != nil {
		t.Fatal(err)
	}
	here := settledFacts(t, "br0", "enx0242ac110002", "far0")
	with, without := filepath.Join(t.TempDir(), "with"), filepath.Join(t.TempDir(), "a", "without")
	if diff := cmp.Diff(here, factsAs(t, "--record", with, "--with-addresses")); diff != "" {
		t.Errorf("facts while recording (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(here, factsAs(t, "--from", with)); diff != "" {
		t.Errorf("facts of the recording (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(here, factsAs(t)); diff != "" {
		t.Errorf("facts without recording (-want +got):\n%s", diff)
	}
	shown := factsAs(t, "--record", without)
	if diff := cmp.Diff(shown, factsAs(t, "--from", without)); diff != "" {
		t.Errorf("facts of the recording without addresses (-want +got):\n%s", diff)
	}
	compareWithoutAddresses(t, here, shown)
	checkNoAddresses(t, without, here)
}

// settledFacts reads the facts once the links are up, because the kernel updates link states asynchronously
// (linkwatch).
func settledFacts(t *testing.T, links ...string) discovery.Facts {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(20 * time.Second)
	for {
		facts, err := osdeps.ReadFacts(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		settled := 0
		for i := range facts.Devices {
			if slices.Contains(links, string(facts.Devices[i].Interface)) && facts.Devices[i].OperState == "up" {
				settled++
			}
		}
		if settled == len(links) {
			return facts
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("links did not come up in time: %+v", facts.Devices)
		}
	}
}

// compareWithoutAddresses compares two sets of facts after replacing the machine's addresses with the anonymized ones.
func compareWithoutAddresses(t *testing.T, here, shown discovery.Facts) {
	t.Helper()
	if len(here.Devices) != len(shown.Devices) {
		t.Fatalf("got %d devices, want %d", len(shown.Devices), len(here.Devices))
	}
	encoded, err := json.Marshal(here)
	if err != nil {
		t.Fatal(err)
	}
	text := string(encoded)
	for i, d := range here.Devices {
		fake := shown.Devices[i].MAC
		text = strings.ReplaceAll(text, d.MAC, fake)
		text = strings.ReplaceAll(text, strings.ReplaceAll(d.MAC, ":", ""), strings.ReplaceAll(fake, ":", ""))
	}
	var replaced discovery.Facts
	if err := json.Unmarshal([]byte(text), &replaced); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(replaced, shown); diff != "" {
		t.Errorf("facts without addresses (-want +got):\n%s", diff)
	}
}

func checkNoAddresses(t *testing.T, dir string, here discovery.Facts) {
	t.Helper()
	for _, name := range []string{"sysfs.json", "netlink.json"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range here.Devices {
			if bytes.Contains(content, []byte(d.MAC)) ||
				bytes.Contains(content, []byte(strings.ReplaceAll(d.MAC, ":", ""))) {
				t.Errorf("%s contains the MAC address of %s", name, d.Name)
			}
		}
	}
}

// recorded writes a recording that exercises every part of the text output.
func recorded(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	pf, vf := "devices/pci0000:00/0000:03:00.0", "devices/pci0000:00/0000:03:00.2"
	recording := discovery.Recording{
		Sys: discovery.Tree{
			Links: map[string]string{
				"bus/pci/devices/0000:03:00.0": "../../../" + pf, "bus/pci/devices/0000:03:00.2": "../../../" + vf,
				"class/net/eth0": "../../" + pf + "/net/eth0", "class/net/br0": "../../devices/virtual/net/br0",
				"class/net/eth0.5": "../../devices/virtual/net/eth0.5", pf +
					"/net/eth0/device": "../../../0000:03:00.0",
				pf + "/virtfn0": "../0000:03:00.2", vf + "/physfn": "../0000:03:00.0", vf +
					"/driver": "../../bus/pci/drivers/vfio-pci",
			},
			Files: map[string]string{
				pf + "/class": "0x020000", pf + "/sriov_totalvfs": "8", pf + "/sriov_numvfs": "1", pf +
					"/numa_node": "many",
				pf + "/net/eth0/speed": "25000", vf + "/class": "0x020000", vf + "/numa_node": "1",
			},
			Dirs: []string{pf + "/infiniband/mlx5_0"},
		},
		Netlink: discovery.RecordedNetlink{DefaultRoutes: []int{3}, Links: []discovery.RecordedLink{
			{Index: 2, Name: "eth0", Kind: "device", OperState: "up", Master: 3},
			{Index: 3, Name: "br0", Kind: "bridge", OperState: "up", VLANFiltering: true},
			{Index: 4, Name: "eth0.5", Kind: "vlan", OperState: "down", Parent: 2, VLANID: 5},
		}},
	}
	if err := recording.Write(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestFactsText(t *testing.T) {
	code, stdout, stderr := runFacts(t, "--from", recorded(t))
	want := `
NAME    TYPE    IF      STATE  PCI           NUMA  PF    VF  VFS  SPEED  DRIVER    MASTER  PARENT  NOTES
br0     bridge  br0     up     -             -     -     -   -    -      -         -       -       default route, vlan filtering
eth0    pf      eth0    up     0000:03:00.0  -     -     -   1/8  25000  -         br0     -       default route, rdma mlx5_0
eth0.5  vlan    eth0.5  down   -             -     -     -   -    -      -         -       eth0    vlan 5
eth0v0  vf      -       -      0000:03:00.2  1     eth0  0   -    -      vfio-pci  -       -       -
! 0000:03:00.0: cannot use numa_node: it contains "many", which is not a number from -1 to 1023
`
	if diff := cmp.Diff(want, "\n"+stdout); diff != "" || code != exit.OK || stderr != "" {
		t.Errorf("exit status %d, %s (-want +got):\n%s", code, stderr, diff)
	}
}

// RDMA devices are shown with their link layer and namespace mode. RDMA devices in another namespace are not shown.
func TestFactsAndExplanationsOfRDMA(t *testing.T) {
	machine := discoverytest.RDMA()
	machine.Sys.Dirs = slices.DeleteFunc(machine.Sys.Dirs,
		func(d string) bool { return strings.HasSuffix(d, "/mlx5_2") })
	machine.Netlink.RDMADevices = slices.Delete(machine.Netlink.RDMADevices, 1, 2)
	machine.RDMAOn("another", "v0")
	dir := filepath.Join(t.TempDir(), "worker-1")
	if err := machine.Write(dir); err != nil {
		t.Fatal(err)
	}
	_, stdout, _ := runFacts(t, "--from", dir)
	const mode = "exclusive"
	for device, want := range map[string][2]string{
		"bond0":      {"rdma mlx5_bond_0 (ethernet, exclusive)", "RDMA mlx5_bond_0 (ethernet, " + mode + ")"},
		"ib0":        {"rdma ibp7s0 (infiniband, exclusive)", "RDMA ibp7s0 (infiniband, " + mode + ")"},
		"v0":         {"rdma another rxe0 (ethernet, exclusive)", "RDMA another, rxe0 (ethernet, " + mode + ")"},
		"enp3s0f0v0": {"rdma (exclusive)", "RDMA without a device in this network namespace (" + mode + ")"},
		"bond0.7":    {"vlan 7", ""},
	} {
		line := ""
		for row := range strings.Lines(stdout) {
			if strings.HasPrefix(row, device+" ") {
				line = strings.TrimSpace(row)
			}
		}
		if !strings.HasSuffix(line, "  "+want[0]) {
			t.Errorf("facts: line %s does not end with %q", line, want[0])
		}
		_, explained, _ := runNetdra(t, "", "explain", device, "-f",
			filepath.Join("..", "..", "slices", "testdata", "example1.yaml"), "--from", dir)
		if want[1] == "" && strings.Contains(explained, "RDMA") || !strings.Contains(explained, want[1]) {
			t.Errorf("explain: want %q in\n%s", want[1], explained)
		}
	}
}

func TestFactsYAML(t *testing.T) {
	code, stdout, _ := runFacts(t, "--from", recorded(t), "-o", "yaml")
	if code != exit.OK || !strings.Contains(stdout, "- adminUp: false") || !strings.Contains(stdout, "problems:") {
		t.Errorf("exit status %d:\n%s", code, stdout)
	}
}

func TestFactsRefuses(t *testing.T) {
	dir := recorded(t)
	truncated := t.TempDir()
	for _, name := range []string{"sysfs.json", "netlink.json"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(truncated, name), content[:len(content)/2], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for want, arguments := range map[string][]string{
		"json of the recording":                       {"--from", t.TempDir()},
		"--from /no/such":                             {"--from", "/no/such"},
		"unexpected end of JSON input":                {"--from", truncated},
		"use text, json or yaml":                      {"-o", "xml"},
		"from record":                                 {"--from", dir, "--record", dir},
		"from with-addresses":                         {"--from", dir, "--with-addresses"},
		"choose another directory":                    {"--record", dir},
		"to show one device, run netdra explain eth0": {"eth0"},
	} {
		if code, stdout, stderr := runFacts(t, arguments...); code != exit.Refused || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit status %d, want %q:\n%s%s", arguments, code, want, stdout, stderr)
		}
	}
}
