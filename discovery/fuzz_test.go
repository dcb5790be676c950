package discovery_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
)

// FuzzSysfs writes arbitrary text to arbitrary existing or new files and links in a sysfs. Regardless of the text,
// reading must not panic, the results must be consistent, and a recording must contain the same facts.
func FuzzSysfs(f *testing.F) {
	machine := fuzzed()
	names := slices.Sorted(maps.Keys(machine.Sys.Files))
	names = append(names, slices.Sorted(maps.Keys(machine.Sys.Links))...)
	for i, text := range []string{"", "-1", "4294967295", "1e9", "0x15b3", "../0000:05:00.0", "../../../..", "/",
		"pf0vf1", "\x00", "0x02"} {
		f.Add(uint16(i*len(names)/11), text, "")
		f.Add(uint16(i), text, "virtfn0")
		f.Add(uint16(i), text, "sriov_totalvfs")
	}
	for i, name := range names {
		if strings.Contains(name, "/ports/1/") {
			f.Add(uint16(i), "4: ACTIVE", "")
			f.Add(uint16(i), "0xffff", "2")
		}
	}
	f.Fuzz(func(t *testing.T, which uint16, text, other string) {
		h := fuzzed()
		name := names[int(which)%len(names)]
		_, isFile := h.Sys.Files[name]
		if other != "" && !strings.Contains(other, "/") {
			name = pathOf(name, other)
		}
		if isFile {
			h.Sys.Files[name] = text
		} else {
			h.Sys.Links[name] = text
		}
		sources := h.Sources()
		facts, err := discovery.Read(t.Context(), sources)
		if err != nil {
			return // reading may fail as a whole, but not partially
		}
		checkSense(t, facts)
		recording, err := discovery.Record(t.Context(), sources)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(facts, readRecording(t, recording)); diff != "" {
			t.Errorf("recording (-want +got):\n%s", diff)
		}
	})
}

// fuzzed returns a switchdev machine whose physical function has an RDMA device with an InfiniBand port.
func fuzzed() *discoverytest.Host {
	h := discoverytest.Switchdev()
	h.RDMA("0000:05:00.0", "mlx5_0")
	h.RDMAPort("0000:05:00.0", "mlx5_0", "link_layer=InfiniBand", "state=4: ACTIVE", "rate=400 Gb/sec (4X NDR)",
		classicGID, "pkeys/0=0x7fff", "pkeys/1=0x8001")
	return h
}

// pathOf returns the path to another file in the same directory.
func pathOf(name, other string) string {
	return name[:strings.LastIndex(name, "/")+1] + other
}

// checkSense checks the invariants that must hold for all facts.
func checkSense(t *testing.T, facts discovery.Facts) {
	t.Helper()
	if !slices.IsSortedFunc(facts.Devices,
		func(a, b discovery.Device) int { return strings.Compare(string(a.Name), string(b.Name)) }) {
		t.Errorf("the devices are not sorted:\n%s", summary(facts))
	}
	for _, d := range append(slices.Clone(facts.Devices), facts.Orphans...) {
		if d.NUMANode < -1 || d.NUMANode > 1023 || d.LinkSpeed < 0 || d.TotalVFs < 0 || d.NumVFs < 0 ||
			d.NumVFs > d.TotalVFs || d.VFIndex < -1 {
			t.Errorf("device with impossible numbers: %+v", d)
		}
		if p := d.RDMAPort; p.Rate < 0 || len(p.PKeys) > 256 || p.Rate > 0 && p.State == "" ||
			p.GUID != "" && len(p.GUID) != len(guid) || slices.Contains(p.PKeys, "0x0000") {
			t.Errorf("RDMA port with impossible facts: %+v", d)
		}
		if isVF := d.Type == discovery.TypeVF; isVF != (d.PFAddress != "") || !isVF && d.VFIndex >= 0 {
			t.Errorf("device with inconsistent virtual function fields: %+v", d)
		}
	}
	for _, d := range facts.Devices {
		if d.Name == "" || d.Type == discovery.TypeVF && d.VFIndex < 0 {
			t.Errorf("device without a name, or virtual function without an index: %+v", d)
		}
	}
	text, err := json.Marshal(facts)
	if err != nil {
		t.Fatal(err)
	}
	var again discovery.Facts
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(facts, again); diff != "" {
		t.Errorf("facts do not survive JSON (-want +got):\n%s", diff)
	}
}
