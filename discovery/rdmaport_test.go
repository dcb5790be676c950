package discovery_test

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
)

const (
	adapter    = "pci-0000-1a-00-0"
	guid       = "0x0002c90300a1b2c0"
	classicGID = "gids/0=fe80:0000:0000:0000:0002:c903:00a1:b2c0"
)

// changedPort returns the port of an InfiniBand adapter after files were changed, and the problems.
func changedPort(t *testing.T, files ...string) (discovery.RDMAPort, []discovery.Problem) {
	t.Helper()
	h := discoverytest.InfiniBand()
	h.RDMAPort("0000:1a:00.0", "mlx5_0", files...)
	facts := read(t, h)
	checkSense(t, facts)
	roundTrip(t, h.Sources())
	return byName(t, facts, adapter).RDMAPort, facts.Problems
}

// pKeyTable returns the files of a partition key table with the given number of entries.
func pKeyTable(entries int, keys map[int]string) []string {
	var files []string
	for i := range entries {
		key := keys[i]
		if key == "" {
			key = "0x0000"
		}
		files = append(files, fmt.Sprintf("pkeys/%d=%s", i, key))
	}
	return files
}

func TestRDMAPorts(t *testing.T) {
	keys := []string{"0x7fff", "0x8001"}
	for name, test := range map[string]struct {
		files []string
		want  discovery.RDMAPort
	}{
		"unchanged": {nil, discovery.RDMAPort{GUID: guid, State: "active", Rate: 400, PKeys: keys}},
		"fraction": {[]string{"rate=2.5 Gb/sec (1X)"},
			discovery.RDMAPort{GUID: guid, State: "active", Rate: 2, PKeys: keys}},
		"without a subnet manager": {[]string{"state=2: INIT"},
			discovery.RDMAPort{GUID: guid, State: "init", Rate: 400, PKeys: keys}},
		"down": {[]string{"state=1: DOWN", "rate=10 Gb/sec (4X SDR)"},
			discovery.RDMAPort{GUID: guid, State: "down", PKeys: keys}},
		"without a GUID": {[]string{"gids/0=fe80:0000:0000:0000:0000:0000:0000:0000"},
			discovery.RDMAPort{State: "active", Rate: 400, PKeys: keys}},
		"full and limited member": {pKeyTable(128, map[int]string{0: "0xffff", 1: "0x7fff", 9: "0x0001", 31: "0xffff",
			33: "0x8001"}), discovery.RDMAPort{GUID: guid, State: "active", Rate: 400,
			PKeys: []string{"0x0001", "0x7fff", "0x8001", "0xffff"}}},
		"no keys": {pKeyTable(128, nil), discovery.RDMAPort{GUID: guid, State: "active", Rate: 400}},
		"RoCE": {[]string{"link_layer=Ethernet", "rate=100 Gb/sec (4X EDR)"},
			discovery.RDMAPort{State: "active", Rate: 100}},
		"cloud adapter": {[]string{"link_layer=Unspecified"}, discovery.RDMAPort{State: "active", Rate: 400}},
	} {
		t.Run(name, func(t *testing.T) {
			got, problems := changedPort(t, test.files...)
			if diff := cmp.Diff(test.want, got); diff != "" || len(problems) > 0 {
				t.Errorf("problems: %v (-want +got):\n%s", problems, diff)
			}
		})
	}
	h := discoverytest.InfiniBand()
	if diff := cmp.Diff(read(t, h), readFrom(t, onSys(h.Sources(), onDisk(t, h.Sys)))); diff != "" {
		t.Errorf("facts from files (-in memory +in files):\n%s", diff)
	}
}

// Content that the kernel does not write makes a fact absent and is reported once. Empty files only make it absent.
func TestRDMAPortsWithOddFiles(t *testing.T) {
	good := discovery.RDMAPort{GUID: guid, State: "active", Rate: 400, PKeys: []string{"0x7fff", "0x8001"}}
	without := func(change func(p *discovery.RDMAPort)) discovery.RDMAPort {
		changed := good
		change(&changed)
		return changed
	}
	noGUID := without(func(p *discovery.RDMAPort) { p.GUID = "" })
	noRate := without(func(p *discovery.RDMAPort) { p.Rate = 0 })
	noState := without(func(p *discovery.RDMAPort) { p.State, p.Rate = "", 0 })
	noKeys := without(func(p *discovery.RDMAPort) { p.PKeys = nil })
	for file, test := range map[string]struct {
		want    discovery.RDMAPort
		problem string
	}{
		"link_layer=":            {discovery.RDMAPort{}, ""},
		"state=":                 {noState, ""},
		"state=ACTIVE":           {noState, `cannot use state: it contains "ACTIVE", which is not a port state`},
		"state=4: A\x1b[31m":     {noState, `cannot use state: it contains "4: A\x1b[31m", which is not a port state`},
		"rate=":                  {noRate, ""},
		"rate=fast":              {noRate, `cannot use rate: it contains "fast", which is not a rate in Gb/sec`},
		"rate=-1 Gb/sec (4X)":    {noRate, `cannot use rate: it contains "-1", which is not a number from 0 to 65535`},
		"rate=65536 Gb/sec":      {noRate, `cannot use rate: it contains "65536", which is not a number from 0 to 65535`},
		"gids/0=":                {noGUID, ""},
		"gids/0=::ffff:10.0.0.1": {noGUID, `cannot use gids/0: it contains "::ffff:10.0.0.1", which is not a GID`},
		"gids/0=" + strings.Repeat("é", 9999): {noGUID, `cannot use gids/0: it contains "` +
			strings.Repeat(`\u00e9`, 20) + `"..., which is not a GID`},
		"pkeys/1=":        {noKeys, `cannot use pkeys/1: it contains "", which is not a partition key`},
		"pkeys/1=0x8001 ": {good, ""},
		"pkeys/1=0x80001": {noKeys, `cannot use pkeys/1: it contains "0x80001", which is not a partition key`},
		"pkeys/1=8001":    {noKeys, `cannot use pkeys/1: it contains "8001", which is not a partition key`},
	} {
		t.Run(file[:min(len(file), 30)], func(t *testing.T) {
			got, problems := changedPort(t, file)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			var want []discovery.Problem
			if test.problem != "" {
				want = []discovery.Problem{{Device: "mlx5_0", Message: test.problem}}
			}
			if diff := cmp.Diff(want, problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// Ports that cannot be read have no facts, and neither have RDMA devices whose link in sysfs is damaged.
func TestUnreadableRDMAPorts(t *testing.T) {
	const ports = "devices/pci0000:00/0000:00:01.0/0000:1a:00.0/infiniband/mlx5_0/ports/1/"
	for file, want := range map[string]discovery.RDMAPort{
		ports + "link_layer":      {},
		ports + "state":           {GUID: guid, PKeys: []string{"0x7fff", "0x8001"}},
		ports + "rate":            {GUID: guid, State: "active", PKeys: []string{"0x7fff", "0x8001"}},
		ports + "gids/0":          {State: "active", Rate: 400, PKeys: []string{"0x7fff", "0x8001"}},
		ports + "pkeys/2":         {GUID: guid, State: "active", Rate: 400},
		"class/infiniband/mlx5_0": {},
	} {
		for _, failure := range []syscall.Errno{syscall.EIO, syscall.EACCES, syscall.EINVAL} {
			want := want
			if failure == syscall.EINVAL && strings.HasSuffix(file, "pkeys/2") { // the end of the table
				want.PKeys = []string{"0x7fff"}
			}
			sources := discoverytest.InfiniBand().Sources()
			sources.Sys = spoiled{sources.Sys, map[string]error{file: failure}}
			facts := readFrom(t, sources)
			if diff := cmp.Diff(want, byName(t, facts, adapter).RDMAPort); diff != "" {
				t.Errorf("%s: %v (-want +got):\n%s", file, failure, diff)
			}
			if reported := len(facts.Problems) == 1; reported != (failure != syscall.EINVAL) {
				t.Errorf("%s: %v: problems = %v", file, failure, facts.Problems)
			}
			roundTrip(t, sources)
		}
	}
	for _, target := range []string{"../../../../../../etc", "/", "", "mlx5_0", "../../devices/none"} {
		h := discoverytest.InfiniBand()
		h.Sys.Links["class/infiniband/mlx5_0"] = target
		if facts := read(t, h); byName(t, facts, adapter).RDMAPort.State != "" || len(facts.Problems) > 0 {
			t.Errorf("link to %q: facts of a port, or problems: %v", target, facts.Problems)
		}
	}
}

// The number of files that are read is bounded: drivers may query the hardware for each.
func TestRDMAPortsWithLargeTables(t *testing.T) {
	all := map[int]string{}
	for i := range 5000 {
		all[i] = fmt.Sprintf("0x%04x", i+1)
	}
	for name, test := range map[string]struct {
		keys map[int]string
		want int // number of entries that are read
	}{
		"unused":          {nil, 32},
		"one block":       {map[int]string{0: "0xffff", 5: "0x8001"}, 32},
		"end of a block":  {map[int]string{31: "0xffff"}, 64},
		"next block":      {map[int]string{0: "0xffff", 32: "0x8001"}, 32},
		"all":             {all, 256},
		"behind the last": {map[int]string{0: "0xffff", 4000: "0x8001"}, 32},
	} {
		h := discoverytest.InfiniBand()
		h.RDMAPort("0000:1a:00.0", "mlx5_0", pKeyTable(5000, test.keys)...)
		recording, err := discovery.Record(t.Context(), h.Sources())
		if err != nil {
			t.Fatal(err)
		}
		entries := 0
		for file := range recording.Sys.Files {
			if strings.Contains(file, "/mlx5_0/ports/1/pkeys/") {
				entries++
			}
		}
		if entries != test.want {
			t.Errorf("%s: %d entries were read, want %d", name, entries, test.want)
		}
	}
}

// A virtual function's InfiniBand port has its own GUID and keys. Its Ethernet port is not read.
func TestRDMAPortsOfVirtualFunctions(t *testing.T) {
	h := discoverytest.RDMA()
	for _, layer := range []string{"InfiniBand", "Ethernet"} {
		h.RDMAPort("0000:03:00.2", "mlx5_2", "link_layer="+layer, "state=4: ACTIVE", "rate=100 Gb/sec (4X EDR)",
			"pkeys/0=0x8001", classicGID)
		want := discovery.RDMAPort{GUID: guid, State: "active", Rate: 100, PKeys: []string{"0x8001"}}
		if layer == "Ethernet" {
			want = discovery.RDMAPort{}
		}
		if diff := cmp.Diff(want, byName(t, read(t, h), "enp3s0f0v0").RDMAPort); diff != "" {
			t.Errorf("%s (-want +got):\n%s", layer, diff)
		}
	}
}

// If an RDMA device has several ports, each interface has the facts of its own port. A number that only distinguishes
// the interfaces of several functions selects the first port.
func TestRDMADevicesWithSeveralPorts(t *testing.T) {
	h := discoverytest.NewHost()
	h.Function("0000:05:00.0")
	h.NIC("ib0", "0000:05:00.0")
	h.NIC("ib1", "0000:05:00.0")
	h.WriteFiles(h.Dir("0000:05:00.0")+"/net/ib1", "dev_port=1")
	h.RDMA("0000:05:00.0", "mlx4_0")
	h.RDMAPort("0000:05:00.0", "mlx4_0", "link_layer=InfiniBand", "state=4: ACTIVE", "rate=40 Gb/sec (4X QDR)")
	h.WriteFiles(h.Dir("0000:05:00.0")+"/infiniband/mlx4_0/ports/2", "link_layer=InfiniBand", "state=1: DOWN")
	states := func() []string {
		facts := read(t, h)
		return []string{byName(t, facts, "ib0").RDMAPort.State, byName(t, facts, "ib1").RDMAPort.State}
	}
	if got := states(); !slices.Equal(got, []string{"active", "down"}) {
		t.Errorf("states of the ports = %q, want active and down", got)
	}
	roundTrip(t, h.Sources())
	h.WriteFiles(h.Dir("0000:05:00.0")+"/net/ib1", "dev_port=2")
	if got := states(); !slices.Equal(got, []string{"active", "active"}) {
		t.Errorf("states without a port of that number = %q, want active twice", got)
	}
}

// The only interface of a function may be that of the second port: the link of the first port is in a pod. The facts of
// the first port are not used instead, even if the second port cannot be read.
func TestSecondPortOfAFunction(t *testing.T) {
	for name, test := range map[string]struct{ file, want string }{
		"readable":   {"link_layer=InfiniBand", "down"},
		"unreadable": {"link_layer=", ""},
	} {
		h := discoverytest.NewHost()
		h.Function("0000:05:00.0")
		h.NIC("ib1", "0000:05:00.0")
		h.WriteFiles(h.Dir("0000:05:00.0")+"/net/ib1", "dev_port=1")
		h.RDMA("0000:05:00.0", "mlx4_0")
		h.RDMAPort("0000:05:00.0", "mlx4_0", "link_layer=InfiniBand", "state=4: ACTIVE", "rate=40 Gb/sec (4X QDR)")
		h.WriteFiles(h.Dir("0000:05:00.0")+"/infiniband/mlx4_0/ports/2", test.file, "state=1: DOWN")
		if got := byName(t, read(t, h), "ib1").RDMAPort.State; got != test.want {
			t.Errorf("%s: state of the port = %q, want %q", name, got, test.want)
		}
	}
}

// A device that was moved to a pod keeps the facts of its port. Without a snapshot, they are unknown.
func TestRDMAPortsInOtherNamespaces(t *testing.T) {
	h := discoverytest.InfiniBand()
	before := byName(t, read(t, h), adapter)
	delete(h.Sys.Links, "class/infiniband/mlx5_0")
	h.Netlink.RDMADevices = h.Netlink.RDMADevices[1:]
	h.Sys.Dirs = slices.DeleteFunc(h.Sys.Dirs, func(dir string) bool { return strings.HasSuffix(dir, "/mlx5_0") })
	facts := read(t, h)
	if d := byName(t, facts, adapter); !d.RDMA || !cmp.Equal(d.RDMAPort, discovery.RDMAPort{}) {
		t.Errorf("RDMA = %v, port = %+v, want a device without facts about its port", d.RDMA, d.RDMAPort)
	}
	if diff := cmp.Diff(before, byName(t, facts.With(before), adapter)); diff != "" {
		t.Errorf("device with its snapshot (-want +got):\n%s", diff)
	}
}
