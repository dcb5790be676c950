package vm

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/dra-networking/dra-network-driver/e2e/vm/guest"
)

// Where QEMU and what it needs are in the unpacked packages.
const (
	loader    = "usr/lib64/ld-linux-x86-64.so.2"
	libraries = "usr/lib/x86_64-linux-gnu"
	qemu      = "usr/bin/qemu-system-x86_64"
)

// Accelerators of QEMU. Emulation on several threads gains nothing where there is one processor, and where several
// machines share those of the host.
const (
	kvm       = "kvm"
	emulation = "tcg,thread=single,tb-size=512"
	parallel  = "tcg,thread=multi,tb-size=512"
)

// kernelParameters are those of every machine. Together they make an emulated boot short and sure: panic=-1 reboots at
// once, which ends QEMU (-no-reboot); mitigations and address randomization cost time and protect nothing here;
// random.trust_cpu gives entropy without waiting; and the kernel must not measure timers, which are late on a busy host
// (tsc, no_timer_check). The IOMMU is for vfio-pci.
const kernelParameters = "console=ttyS0 panic=-1 quiet loglevel=4 mitigations=off random.trust_cpu=on nokaslr " +
	"tsc=reliable no_timer_check intel_iommu=on iommu=pt"

// machine is what QEMU is told; see arguments. All paths are those of the host and absolute; commas end values of
// QEMU's options, so folders must have none.
type machine struct {
	imageDir, runDir string
	accelerator      string
	pfs              int
	memory           int // MiB
	processors       int
	folders          []hostFolder
	uplink           *Uplink // nil for none
	parameters       []string
}

// hostFolder is a folder of the host that the machine sees by its tag.
type hostFolder struct {
	tag, path string
	writable  bool
}

// numaNodes is how many there are. Physical functions alternate between them, each on a PCIe root of its own. Two are
// the least that a test of alignment needs. There is one processor, on the first: the second has memory only.
const numaNodes = 2

// arguments are QEMU's command line, without the program. The machine has two serial lines: the kernel's console, in
// the file console.log, and the command's terminal, which is QEMU's own standard input and output. Devices that nobody
// needs are switched off, since each is probed in an emulated boot. Fixed PCI addresses come first, or QEMU could have
// given their places to a device that takes any.
func (m *machine) arguments() []string {
	root := filepath.Join(m.imageDir, "root")
	processor, accelerator := "max", m.accelerator
	switch {
	case accelerator == kvm:
		processor = "host"
	case m.processors > 1:
		accelerator = parallel
	}
	args := []string{
		"-L", filepath.Join(root, "usr/share/qemu"), "-L", filepath.Join(root, "usr/share/seabios"),
		"-accel", accelerator, "-cpu", processor, "-smp", fmt.Sprint(m.processors),
		"-m", fmt.Sprint(m.memory / numaNodes * numaNodes),
		"-M", "q35,usb=off,vmport=off,smbus=off,sata=off,hpet=off", "-nodefaults", "-no-user-config", "-display",
		"none", "-no-reboot",
		"-kernel", filepath.Join(m.imageDir, "vmlinux"), "-initrd", filepath.Join(m.runDir, "initrd"),
		"-append", strings.Join(append([]string{kernelParameters}, m.parameters...), " "),
		"-device", "intel-iommu,intremap=off,caching-mode=on", "-device", "virtio-rng-pci",
		"-serial", "file:" + filepath.Join(m.runDir, "console.log"), "-chardev", "stdio,id=terminal,signal=off",
		"-serial", "chardev:terminal",
	}
	args = append(args, m.hardware()...) // first, since its places are fixed
	folders := append([]hostFolder{{tag: guest.RootTag, path: root},
		{tag: guest.ControlTag, path: m.runDir, writable: true}}, m.folders...)
	for _, folder := range folders {
		access := ",readonly=on"
		if folder.writable {
			access = ""
		}
		args = append(args, "-fsdev", fmt.Sprintf("local,id=%s,path=%s,security_model=none%s", folder.tag,
			folder.path, access),
			"-device", fmt.Sprintf("virtio-9p-pci,bus=pcie.0,fsdev=%s,mount_tag=%s", folder.tag, folder.tag))
	}
	if m.uplink != nil {
		args = append(args, m.uplink.arguments()...)
	}
	return args
}

// arguments are those of the card. It is QEMU's user-mode network, which needs no link and no right on the host: QEMU
// opens sockets as a process of the network namespace that it was started in.
func (u *Uplink) arguments() []string {
	network := fmt.Sprintf("user,id=uplink,ipv6=off,net=%s,host=%s", u.Subnet, u.Gateway)
	for _, port := range u.Ports {
		network += fmt.Sprintf(",hostfwd=tcp:127.0.0.1:%d-%s:%d", port, u.Machine, port)
	}
	return []string{"-netdev", network, "-device", "virtio-net-pci,bus=pcie.0,netdev=uplink,romfile=,mac=" +
		guest.UplinkMAC}
}

// hardware is NUMA nodes, PCIe and network cards. All cards are on one network segment, which ends in QEMU. Each
// physical function is behind a root port of its own on an expander bridge (pxb-pcie), which is what gives it a NUMA
// node. Bus numbers begin at 0x40 and 0x80; the function is on the bus behind its port, so the first is 0000:41:00.0
// and the second 0000:81:00.0. The option romfile= leaves out boot ROMs, which are in no package that is fetched.
func (m *machine) hardware() []string {
	var args []string
	for node := range numaNodes {
		processors := ""
		if node == 0 {
			processors = fmt.Sprintf(",cpus=0-%d", m.processors-1)
		}
		args = append(args,
			"-object", fmt.Sprintf("memory-backend-ram,id=memory%d,size=%dM", node, m.memory/numaNodes),
			"-numa", fmt.Sprintf("node,nodeid=%d,memdev=memory%d%s", node, node, processors),
			"-device", fmt.Sprintf("pxb-pcie,id=root%d,bus_nr=%d,bus=pcie.0,addr=%#x,numa_node=%d", node, (node+1)*0x40,
				node+8, node))
	}
	for i := range m.pfs {
		args = append(args,
			"-netdev", fmt.Sprintf("hubport,id=segment%d,hubid=0", i),
			"-device", fmt.Sprintf("pcie-root-port,id=port%d,chassis=%d,slot=%d,bus=root%d,addr=%d.0", i, i+1, i+1,
				i%numaNodes, i/numaNodes),
			"-device", fmt.Sprintf("igb,id=pf%d,bus=port%d,netdev=segment%d,mac=52:54:00:aa:%02x:00,romfile=",
				i, i, i, i))
	}
	return args
}
