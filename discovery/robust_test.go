package discovery_test

import (
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
)

// spoiled is a sysfs in which some files and links cannot be read.
type spoiled struct {
	fs.ReadLinkFS
	failing map[string]error
}

func (s spoiled) ReadFile(name string) ([]byte, error) {
	if err := s.failing[name]; err != nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return fs.ReadFile(s.ReadLinkFS, name)
}

func (s spoiled) ReadLink(name string) (string, error) {
	if err := s.failing[name]; err != nil {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: err}
	}
	return s.ReadLinkFS.ReadLink(name)
}

func (s spoiled) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := s.failing[name]; err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return fs.ReadDir(s.ReadLinkFS, name)
}

const (
	pfDir = "devices/pci0000:00/0000:00:01.0/0000:03:00.0"
	vfDir = "devices/pci0000:00/0000:00:01.0/0000:03:00.2"
)

// An unreadable property is reported as a problem, and the device is listed without it.
func TestUnreadableFiles(t *testing.T) {
	h := discoverytest.SRIOV()
	sources := h.Sources()
	sources.Sys = spoiled{sources.Sys, map[string]error{
		pfDir + "/vendor":                syscall.EIO,
		pfDir + "/infiniband":            syscall.EACCES,
		pfDir + "/driver":                syscall.EACCES,
		pfDir + "/net/enp3s0f0/speed":    syscall.EINVAL, // the link is down, which is not a problem
		vfDir + "/class":                 syscall.EACCES, // its link shows that it is a NIC
		pfDir + "/net/enp3s0f0/dev_port": syscall.EIO,
	}}
	facts, err := discovery.Read(t.Context(), sources)
	if err != nil {
		t.Fatal(err)
	}
	check(t, facts, `
br-data bridge
enp3s0f0 pf pci=0000:03:00.0
enp3s0f0v0 vf if=eth7 pci=0000:03:00.2 pf=enp3s0f0
enp3s0f0v1 vf pci=0000:03:00.3 pf=enp3s0f0
problem 0000:03:00.0: cannot read driver: permission denied
problem 0000:03:00.0: cannot read infiniband: permission denied
problem 0000:03:00.0: cannot read vendor: input/output error
problem 0000:03:00.2: cannot read class: permission denied
problem enp3s0f0: cannot read dev_port: input/output error
`)
	roundTrip(t, sources)
}

// Impossible values from drivers are ignored, and the device is still listed.
func TestLyingDrivers(t *testing.T) {
	h := discoverytest.SRIOV()
	h.WriteFiles(pfDir, "numa_node=-7", "vendor=Intel", "sriov_numvfs=99", "device=0xzzzz")
	h.WriteFiles(vfDir, "numa_node=99999999999999999999999999", "sriov_totalvfs=-1")
	h.WriteFiles(pfDir+"/net/enp3s0f0", "speed=4294967295", "dev_port=70000", "phys_port_name=\x00\xffpf")
	h.WriteFiles(vfDir+"/net/eth7", "speed=0x10\x1b[31m")
	h.Symlink(pfDir+"/virtfn9999999999999999999999", vfDir)
	h.Symlink(pfDir+"/virtfn-1", vfDir)
	facts := read(t, h)
	check(t, facts, `
br-data bridge
enp3s0f0 pf pci=0000:03:00.0
enp3s0f0v0 vf if=eth7 pci=0000:03:00.2 pf=enp3s0f0
enp3s0f0v1 vf pci=0000:03:00.3 pf=enp3s0f0
problem 0000:03:00.0: cannot read the settings of the virtual functions (vlan, trust...): there are 8, but the kernel lists 2
problem 0000:03:00.0: cannot use device: it contains "0xzzzz", which is not a PCI ID
problem 0000:03:00.0: cannot use numa_node: it contains "-7", which is not a number from -1 to 1023
problem 0000:03:00.0: cannot use vendor: it contains "Intel", which is not a PCI ID
problem 0000:03:00.0: sriov_numvfs is 99, more than sriov_totalvfs (8)
problem 0000:03:00.2: cannot use numa_node: it contains "99999999999999999999999999", which is not a number from -1 to 1023
problem enp3s0f0: cannot use dev_port: it contains "70000", which is not a number from 0 to 65535
problem enp3s0f0: cannot use phys_port_name: it contains "\x00\xffpf", which is not a valid name
problem eth7: cannot use speed: it contains "0x10\x1b[31m", which is not a number from -1 to 4294967295
`)
	pf := facts.Devices[1]
	if pf.LinkSpeed != 0 || pf.NUMANode != -1 || pf.NumVFs != 8 || pf.Vendor != "" {
		t.Errorf("wrong physical function: %+v", pf)
	}
}

// If symbolic links in sysfs are broken, the device is listed without the facts from their targets.
func TestDanglingLinks(t *testing.T) {
	h := discoverytest.SRIOV()
	h.Symlink("bus/pci/devices/0000:09:00.0", "devices/pci0000:00/0000:09:00.0")      // unplugged
	h.Symlink("bus/pci/devices/whatever", "devices/pci0000:00/whatever")              // not an address
	h.Symlink("class/net/dummy0", "devices/pci0000:00/0000:0a:00.0/net/dummy0")       // its files no longer exist
	h.Symlink("devices/virtual/net/br-data/device", "../../../../../../../../../etc") // points outside of sysfs
	h.Symlink(pfDir+"/virtfn7", "devices/pci0000:00/0000:00:01.0/0000:03:01.7")       // no such function
	h.Netlink.Links = append(h.Netlink.Links,
		discovery.RecordedLink{Index: 9, Name: "dummy0", Kind: "dummy", OperState: "up"})
	facts := read(t, h)
	check(t, facts, `
br-data bridge
dummy0 dummy
enp3s0f0 pf pci=0000:03:00.0
enp3s0f0v0 vf if=eth7 pci=0000:03:00.2 pf=enp3s0f0
enp3s0f0v1 vf pci=0000:03:00.3 pf=enp3s0f0
`)
	roundTrip(t, h.Sources())
}

// A virtual function that its physical function does not list has no name, and this is reported as a problem. The
// virtual function must not be listed as a separate NIC: if it were, one pod could get the virtual function and another
// pod the whole physical function.
func TestVirtualFunctionWithoutIndex(t *testing.T) {
	h := discoverytest.SRIOV()
	delete(h.Sys.Links, pfDir+"/virtfn0")
	facts := read(t, h)
	const want = `
br-data bridge
enp3s0f0 pf pci=0000:03:00.0
enp3s0f0v1 vf pci=0000:03:00.3 pf=enp3s0f0
orphan 0000:03:00.2 of 0000:03:00.0
problem 0000:03:00.2: cannot find the index of the virtual function, which cannot be used without one: 0000:03:00.0 has no virtfn link to it
`
	check(t, facts, want)
	if orphan := facts.Orphans[0]; orphan.Interface != "eth7" || orphan.VFIndex != discovery.None {
		t.Errorf("wrong orphan: %+v", orphan)
	}
	check(t, facts.With(byName(t, facts, "enp3s0f0")), want)
	roundTrip(t, h.Sources())
}

// A dump that contains a link twice is inconsistent, and names that refer to paths outside of sysfs are invalid.
func TestImpossibleDumps(t *testing.T) {
	h := discoverytest.SRIOV()
	h.Netlink.Links = append(h.Netlink.Links, *h.Link("br-data"))
	if facts, err := discovery.Read(t.Context(), h.Sources()); err == nil || len(facts.Devices) > 0 {
		t.Errorf("a dump with a duplicate link was accepted: %v, %v", facts, err)
	}
	h = discoverytest.SRIOV()
	for i, name := range []string{"", ".", "..", "../../etc", "a/b"} {
		h.Netlink.Links = append(h.Netlink.Links,
			discovery.RecordedLink{Index: 20 + i, Name: name, Kind: "dummy", OperState: "up"})
	}
	facts := read(t, h)
	if len(facts.Devices) != 4 || len(facts.Problems) != 5 {
		t.Errorf("want 4 devices and 5 problems, got\n%s", summary(facts))
	}
}

// Recording retries and fails under the same conditions as reading.
func TestRecordRetriesInterruptedDumps(t *testing.T) {
	sources := discoverytest.SRIOV().Sources()
	want := readFrom(t, sources)
	dumps := &interrupted{sources.Links, 2}
	sources.Links = dumps
	recording, err := discovery.Record(t.Context(), sources)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, readRecording(t, recording)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	dumps.left = 1000
	if _, err := discovery.Record(t.Context(), sources); err == nil {
		t.Error("a partial dump was recorded")
	}
}

// An invalid recording causes an error that states the location of the mistake.
func TestWrongRecordings(t *testing.T) {
	for want, link := range map[string]discovery.RecordedLink{
		`link 3: mac: "02:0" is not a link address`: {Index: 3, Name: "a", Kind: "dummy", OperState: "up",
			MAC: "02:0"},
		`link 3: operState: unknown state "flying"`: {Index: 3, Name: "a", Kind: "dummy", OperState: "flying"},
		`link 3: kind: is missing`:                  {Index: 3, Name: "a", OperState: "up"},
	} {
		recording := discovery.Recording{Netlink: discovery.RecordedNetlink{Links: []discovery.RecordedLink{link}}}
		if _, err := recording.Sources(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want %s", err, want)
		}
	}
}
