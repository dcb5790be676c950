package vm

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/dra-networking/dra-network-driver/e2e/vm/guest"
)

// The program cpio can read the archive.
func TestCPIO(t *testing.T) {
	tool, err := exec.LookPath("cpio")
	if err != nil {
		t.Skip("needs cpio to read the archive")
	}
	var archive bytes.Buffer
	writer := cpioWriter{output: &archive}
	writer.folder("modules")
	want := map[string]string{"modules/a.ko": "", "modules/b.ko": "four", "init": "a longer text"}
	for _, name := range []string{"modules/a.ko", "modules/b.ko", "init"} {
		writer.file(name, 0o755, []byte(want[name]))
	}
	if err := writer.finish(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command(tool, "--extract", "--quiet")
	cmd.Dir, cmd.Stdin = dir, &archive
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	for name, text := range want {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(data) != text {
			t.Errorf("content of %s = %q, want %q: %v", name, data, text, err)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "init")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("mode of init = %v, want 0755: %v", info, err)
	}
}

// bzImage packs a kernel in the same way as the kernel's build system.
func bzImage(t *testing.T, kernel []byte) []byte {
	t.Helper()
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	payload := binary.LittleEndian.AppendUint32(encoder.EncodeAll(kernel, nil), uint32(len(kernel)))
	const setupSectors, gap = 1, 16
	image := make([]byte, (setupSectors+1)*sector+gap)
	image[offsetSetupSectors] = setupSectors
	copy(image[offsetMagic:], "HdrS")
	binary.LittleEndian.PutUint32(image[offsetPayload:], gap)
	binary.LittleEndian.PutUint32(image[offsetPayloadLength:], uint32(len(payload)))
	return append(append(image, payload...), "what follows"...)
}

func TestUnpackKernel(t *testing.T) {
	want := []byte(strings.Repeat("kernel ", 100))
	image := bzImage(t, want)
	have, err := unpackKernel(image)
	if err != nil || !bytes.Equal(have, want) {
		t.Fatalf("got kernel %q: %v", have, err)
	}
	for name, spoil := range map[string]func([]byte) []byte{
		"empty":    func([]byte) []byte { return nil },
		"no magic": func(i []byte) []byte { i[offsetMagic] = 0; return i },
		"cut off":  func(i []byte) []byte { return i[:len(i)-50] },
		"too long": func(i []byte) []byte { binary.LittleEndian.PutUint32(i[offsetPayloadLength:], 1<<31); return i },
		"no zstd":  func(i []byte) []byte { i[2*sector+16] = 0; return i },
		"too short": func(i []byte) []byte {
			binary.LittleEndian.PutUint32(i[offsetPayloadLength:], 3)
			return i
		},
	} {
		if _, err := unpackKernel(spoil(bytes.Clone(image))); err == nil {
			t.Errorf("unpacking a kernel image succeeded, want an error: %s", name)
		}
	}
}

// elfModule returns an object file that contains only a .modinfo section.
func elfModule(info string) []byte {
	names := "\x00.modinfo\x00.shstrtab\x00"
	const headerSize, sectionSize = 64, 64
	dataAt, namesAt := uint64(headerSize), uint64(headerSize+len(info))
	sectionsAt := namesAt + uint64(len(names))
	out := []byte("\x7fELF\x02\x01\x01")
	out = append(out, make([]byte, 9)...)
	le := binary.LittleEndian
	out = le.AppendUint16(out, 1)  // relocatable
	out = le.AppendUint16(out, 62) // x86-64
	out = le.AppendUint32(out, 1)
	out = le.AppendUint64(out, 0)
	out = le.AppendUint64(out, 0)
	out = le.AppendUint64(out, sectionsAt)
	out = le.AppendUint32(out, 0)
	for _, number := range []uint16{headerSize, 0, 0, sectionSize, 3, 2} {
		out = le.AppendUint16(out, number)
	}
	out = append(append(out, info...), names...)
	out = append(out, make([]byte, sectionSize)...)
	for _, section := range []struct {
		name, kind   uint32
		offset, size uint64
	}{{1, 1, dataAt, uint64(len(info))}, {10, 3, namesAt, uint64(len(names))}} {
		out = le.AppendUint32(out, section.name)
		out = le.AppendUint32(out, section.kind)
		for _, number := range []uint64{0, 0, section.offset, section.size} {
			out = le.AppendUint64(out, number)
		}
		out = append(out, make([]byte, 24)...)
	}
	return out
}

func compressed(t *testing.T, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	writer, err := xz.NewWriter(&out)
	if err == nil {
		_, err = writer.Write(data)
	}
	if err == nil {
		err = writer.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestModulesComeAfterWhatTheyDependOn(t *testing.T) {
	dir := t.TempDir()
	write := func(path string, data []byte) {
		t.Helper()
		if err := writeFile(filepath.Join(dir, path), data); err != nil {
			t.Fatal(err)
		}
	}
	write("kernel/a/top-one.ko.xz", compressed(t, elfModule("name=top_one\x00depends=middle,in_kernel\x00")))
	write("kernel/b/middle.ko", elfModule("depends=bottom\x00"))
	write("kernel/b/bottom.ko.xz", compressed(t, elfModule("depends=\x00")))
	write("kernel/b/unwanted.ko", elfModule(""))
	write("kernel/b/broken.ko", elfModule("depends=missing\x00"))
	write("modules.builtin", []byte("kernel/c/in-kernel.ko\n"))
	tree, err := openModules(dir)
	if err != nil {
		t.Fatal(err)
	}
	all, err := tree.collect([]string{"top-one", "bottom", "in_kernel"})
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, m := range all {
		have = append(have, m.name+" "+m.path)
	}
	want := []string{"bottom kernel/b/bottom.ko", "middle kernel/b/middle.ko", "top_one kernel/a/top-one.ko"}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("modules (-want +have):\n%s", diff)
	}
	_, err = tree.collect([]string{"broken"})
	if err == nil || !strings.Contains(err.Error(), "no module missing, which broken depends on") {
		t.Errorf("error for a missing dependency = %v, want it to name both modules", err)
	}
}

func TestPlannedKernel(t *testing.T) {
	kernel, err := plannedKernel("NOTE: only a simulation\nInst linux-base (4.12 Debian)\nInst " +
		"linux-image-6.12.1+deb13-amd64 (6.12.1-1 Debian:13/stable [amd64])\nInst linux-image-amd64 (6.12.1-1 Debian)\n")
	if want := (kernelVersion{Release: "6.12.1+deb13-amd64", Package: "6.12.1-1"}); err != nil || kernel != want {
		t.Errorf("got unexpected kernel version %q: %v", kernel, err)
	}
	want := []string{"linux-a-6.12.1+deb13-amd64=6.12.1-1", "linux-b-6.12.1+deb13-amd64=6.12.1-1"}
	if diff := cmp.Diff(want, kernel.packages([]string{"linux-a-", "linux-b-"})); diff != "" {
		t.Errorf("packages (-want +have):\n%s", diff)
	}
	if _, err := plannedKernel("Inst linux-image-amd64 (1)\n"); err == nil {
		t.Error("a plan without a kernel was accepted")
	}
}

// The name of an image depends on its components, so that different kinds of images have different names.
func TestImagesOfKinds(t *testing.T) {
	sriov, rdma, ovs := SRIOV.parts(), RDMA.parts(), OVS.parts()
	if sriov.folder() == rdma.folder() || sriov.folder() == ovs.folder() || sriov.folder() != SRIOV.parts().folder() {
		t.Errorf("directories are %s, %s and %s, want one for each kind", sriov.folder(), rdma.folder(), ovs.folder())
	}
	if slices.Contains(sriov.packages, "openvswitch-switch") || !slices.Contains(ovs.packages, "openvswitch-switch") {
		t.Error("want Open vSwitch in OVS machines only")
	}
	rdma.modules = append(rdma.modules, "other")
	if rdma.folder() == RDMA.parts().folder() {
		t.Error("a different module resulted in the same image")
	}
}

// Physical functions alternate between NUMA nodes, each on its own PCIe root.
func TestHardware(t *testing.T) {
	m := &machine{pfs: 3, memory: 1024}
	all := strings.Join(m.arguments(), "\n")
	for _, want := range []string{
		"memory-backend-ram,id=memory1,size=512M", "pxb-pcie,id=root0,bus_nr=64,", "pxb-pcie,id=root1,bus_nr=128,",
		"id=port0,chassis=1,slot=1,bus=root0,addr=0.0", "id=port1,chassis=2,slot=2,bus=root1,addr=0.0",
		"id=port2,chassis=3,slot=3,bus=root0,addr=1.0",
		"igb,id=pf2,bus=port2,netdev=segment2,mac=52:54:00:aa:02:00",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is missing from\n%s", want, all)
		}
	}
}

// If there are several emulated processors, each has its own thread.
func TestProcessors(t *testing.T) {
	for _, test := range []struct {
		accelerator string
		processors  int
		want        []string
	}{
		{emulation, 1, []string{"-accel tcg,thread=single,", "-cpu max", "-smp 1 ", "memdev=memory0,cpus=0-0 "}},
		{emulation, 2, []string{"-accel tcg,thread=multi,", "-cpu max", "-smp 2 ", "memdev=memory0,cpus=0-1 "}},
		{kvm, 2, []string{"-accel kvm ", "-cpu host", "-smp 2 ", "memdev=memory0,cpus=0-1 "}},
	} {
		m := &machine{accelerator: test.accelerator, processors: test.processors, memory: 1024}
		all := strings.Join(m.arguments(), " ")
		for _, want := range test.want {
			if !strings.Contains(all, want) {
				t.Errorf("%s with %d processors: %q is missing from\n%s", test.accelerator, test.processors, want, all)
			}
		}
	}
}

func TestFoldersAreReadOnlyUnlessShared(t *testing.T) {
	share, other := t.TempDir(), t.TempDir()
	m := &machine{}
	order, err := (&Command{Share: share, Folders: map[string]string{other: "/other"}}).order(m)
	if err != nil {
		t.Fatal(err)
	}
	want := []guest.Folder{{Tag: "folder0", Path: "/share", Writable: true}, {Tag: "folder1", Path: "/other"}}
	if diff := cmp.Diff(want, order.Folders); diff != "" {
		t.Errorf("folders (-want +have):\n%s", diff)
	}
	all := strings.Join(m.arguments(), "\n")
	for _, line := range []string{"local,id=folder0,path=" + share + ",security_model=none\n",
		"local,id=folder1,path=" + other + ",security_model=none,readonly=on\n"} {
		if !strings.Contains(all, line) {
			t.Errorf("%q is missing from\n%s", line, all)
		}
	}
	if _, err := (&Command{Share: filepath.Join(share, "missing")}).order(m); err == nil {
		t.Error("a missing directory was accepted")
	}
}

// A module file is made available in the machine, which loads the module's dependencies first.
func TestModuleFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "own.ko")
	if err := writeFile(file, elfModule("depends=middle,bottom\x00")); err != nil {
		t.Fatal(err)
	}
	order, err := (&Command{Modules: []string{"wanted"}, ModuleFiles: []string{file}}).order(&machine{})
	if err != nil {
		t.Fatal(err)
	}
	want := &guest.Order{
		Modules: []string{"igb", "igbvf", "wanted", "middle", "bottom"}, ModuleFiles: []string{"/opt/modules/0/own.ko"},
		Folders: []guest.Folder{{Tag: "folder0", Path: "/opt/modules/0"}},
	}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("order (-want +have):\n%s", diff)
	}
	if err := writeFile(file, []byte("no module")); err != nil {
		t.Fatal(err)
	}
	if _, err := (&Command{ModuleFiles: []string{file}}).order(&machine{}); err == nil {
		t.Error("a file that is not a module was accepted")
	}
}

func TestParameters(t *testing.T) {
	arguments := (&machine{parameters: []string{"ib_core.netns_mode=0"}}).arguments()
	line := arguments[slices.Index(arguments, "-append")+1]
	if !strings.HasPrefix(line, "console=") || !strings.HasSuffix(line, " ib_core.netns_mode=0") {
		t.Errorf("unexpected kernel command line %q", line)
	}
}

func TestUplinkArguments(t *testing.T) {
	m := machine{pfs: 1, memory: 1024, uplink: &Uplink{Link: "uplink", Subnet: "10.88.0.0/16", Gateway: "10.88.0.2",
		Machine: "10.88.0.1", Ports: []int{10250, 22}}}
	all := strings.Join(m.arguments(), " ")
	want := "-netdev user,id=uplink,ipv6=off,net=10.88.0.0/16,host=10.88.0.2," +
		"hostfwd=tcp:127.0.0.1:10250-10.88.0.1:10250,hostfwd=tcp:127.0.0.1:22-10.88.0.1:22 "
	if !strings.Contains(all, want) {
		t.Errorf("arguments are\n%s\nwhich lack\n%s", all, want)
	}
	m.uplink = nil
	if all := strings.Join(m.arguments(), " "); strings.Contains(all, "user,") {
		t.Errorf("a machine without an uplink got a user network: %s", all)
	}
}
