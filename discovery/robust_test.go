package discovery_test

import (
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/dra-networking/dra-network-driver/discovery"
)

// spoiled is a sysfs in which reading some files and links fails.
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

// What cannot be read is a problem, and the device is there without it.
func TestUnreadableFiles(t *testing.T) {
	h := sriovHost()
	sources := h.sources()
	sources.Sys = spoiled{h.sys, map[string]error{
		pfDir + "/vendor":                syscall.EIO,
		pfDir + "/infiniband":            syscall.EACCES,
		pfDir + "/driver":                syscall.EACCES,
		pfDir + "/net/enp3s0f0/speed":    syscall.EINVAL, // the link is down: no problem
		vfDir + "/class":                 syscall.EACCES, // known to be one of a network card by its link
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

// Drivers that say nonsense are not believed, and the device is there.
func TestLyingDrivers(t *testing.T) {
	h := sriovHost()
	h.files(pfDir, "numa_node=-7", "vendor=Intel", "sriov_numvfs=99", "device=0xzzzz")
	h.files(vfDir, "numa_node=99999999999999999999999999", "sriov_totalvfs=-1")
	h.files(pfDir+"/net/enp3s0f0", "speed=4294967295", "dev_port=70000", "phys_port_name=\x00\xffpf")
	h.files(vfDir+"/net/eth7", "speed=0x10\x1b[31m")
	h.link(pfDir+"/virtfn9999999999999999999999", vfDir)
	h.link(pfDir+"/virtfn-1", vfDir)
	facts := read(t, h)
	check(t, facts, `
br-data bridge
enp3s0f0 pf pci=0000:03:00.0
enp3s0f0v0 vf if=eth7 pci=0000:03:00.2 pf=enp3s0f0
enp3s0f0v1 vf pci=0000:03:00.3 pf=enp3s0f0
problem 0000:03:00.0: cannot use device: it says "0xzzzz", which is no PCI id
problem 0000:03:00.0: cannot use numa_node: it says "-7", which is no number from -1 to 1023
problem 0000:03:00.0: cannot use vendor: it says "Intel", which is no PCI id
problem 0000:03:00.0: sriov_numvfs says 99, which is more than the 8 of sriov_totalvfs
problem 0000:03:00.2: cannot use numa_node: it says "99999999999999999999999999", which is no number from -1 to 1023
problem enp3s0f0: cannot use dev_port: it says "70000", which is no number from 0 to 65535
problem enp3s0f0: cannot use phys_port_name: it says "\x00\xffpf", which is no name
problem eth7: cannot use speed: it says "0x10\x1b[31m", which is no number from -1 to 4294967295
`)
	pf := facts.Devices[1]
	if pf.LinkSpeed != 0 || pf.NUMANode != -1 || pf.NumVFs != 8 || pf.Vendor != "" {
		t.Errorf("physical function is %+v", pf)
	}
}

// Links of sysfs that lead nowhere: the device is there without what they lead to.
func TestDanglingLinks(t *testing.T) {
	h := sriovHost()
	h.link("bus/pci/devices/0000:09:00.0", "devices/pci0000:00/0000:09:00.0")      // unplugged
	h.link("bus/pci/devices/whatever", "devices/pci0000:00/whatever")              // no address
	h.link("class/net/dummy0", "devices/pci0000:00/0000:0a:00.0/net/dummy0")       // its files are gone
	h.link("devices/virtual/net/br-data/device", "../../../../../../../../../etc") // leads out
	h.link(pfDir+"/virtfn7", "devices/pci0000:00/0000:00:01.0/0000:03:01.7")       // no such function
	h.links = append(h.links, &netlink.Dummy{LinkAttrs: attrs(9, "dummy0")})
	facts := read(t, h)
	check(t, facts, `
br-data bridge
dummy0 dummy
enp3s0f0 pf pci=0000:03:00.0
enp3s0f0v0 vf if=eth7 pci=0000:03:00.2 pf=enp3s0f0
enp3s0f0v1 vf pci=0000:03:00.3 pf=enp3s0f0
`)
	roundTrip(t, h.quickSources())
}

// A virtual function that its physical function does not know keeps its link, and says so.
func TestVirtualFunctionWithoutIndex(t *testing.T) {
	h := sriovHost()
	delete(h.sys, pfDir+"/virtfn0")
	facts := read(t, h)
	check(t, facts, `
br-data bridge
enp3s0f0 pf pci=0000:03:00.0
enp3s0f0v1 vf pci=0000:03:00.3 pf=enp3s0f0
eth7 nic
problem 0000:03:00.2: cannot find the index of the virtual function, which is left out: 0000:03:00.0 has no virtfn link to it
`)
}

// A dump that has a link twice is not of one moment; names that lead out of sysfs are no names.
func TestImpossibleDumps(t *testing.T) {
	h := sriovHost()
	twice := h.links[len(h.links)-1]
	h.links = append(h.links, twice)
	if facts, err := discovery.Read(t.Context(), h.sources()); err == nil || len(facts.Devices) > 0 {
		t.Errorf("a link that comes twice was taken for the truth: %v, %v", facts, err)
	}
	h = sriovHost()
	for i, name := range []string{"", ".", "..", "../../etc", "a/b"} {
		h.links = append(h.links, &netlink.Dummy{LinkAttrs: attrs(20+i, name)})
	}
	facts := read(t, h)
	if len(facts.Devices) != 4 || len(facts.Problems) != 5 {
		t.Errorf("%s", summary(facts))
	}
}

// Recording is repeated like reading, and fails like it.
func TestRecordRetriesInterruptedDumps(t *testing.T) {
	h := sriovHost()
	want := read(t, h)
	h.interrupted = 2
	recording, err := discovery.Record(t.Context(), h.sources())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, readRecording(t, recording)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	h.interrupted = 1000
	if _, err := discovery.Record(t.Context(), h.sources()); err == nil {
		t.Error("a partial dump was recorded")
	}
}

// What is wrong with a recording is an error that says where.
func TestWrongRecordings(t *testing.T) {
	for want, link := range map[string]discovery.RecordedLink{
		`link 3: mac: "02:0" is no link address`:        {Index: 3, Name: "a", Kind: "dummy", OperState: "up", MAC: "02:0"},
		`link 3: operState: there is no state "flying"`: {Index: 3, Name: "a", Kind: "dummy", OperState: "flying"},
		`link 3: kind: is missing`:                      {Index: 3, Name: "a", OperState: "up"},
	} {
		recording := discovery.Recording{Netlink: discovery.RecordedNetlink{Links: []discovery.RecordedLink{link}}}
		if _, err := recording.Sources(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
