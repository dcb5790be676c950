package vm

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/dra-networking/dra-network-driver/e2e/vm/guest"
)

// Paths of QEMU and its dependencies in the unpacked packages.
const (
	loader    = "usr/lib64/ld-linux-x86-64.so.2"
	libraries = "usr/lib/x86_64-linux-gnu"
	qemu      = "usr/bin/qemu-system-x86_64"
)

// QEMU's accelerators. Multithreaded emulation is no faster if the host has only one processor, or if several machines
// share the host's processors.
const (
	kvm       = "kvm"
	emulation = "tcg,thread=single,tb-size=512"
	parallel  = "tcg,thread=multi,tb-size=512"
)

// kernelParameters are used for every machine. They make an emulated boot fast and reliable: panic=-1 reboots
// immediately on a panic, which terminates QEMU (-no-reboot); mitigations and address randomization would only waste
// time here; random.trust_cpu provides entropy without waiting; and the kernel must not calibrate timers, because
// timers fire late on a busy host (tsc, no_timer_check). vfio-pci needs the IOMMU.
const kernelParameters = "console=ttyS0 panic=-1 quiet loglevel=4 mitigations=off random.trust_cpu=on nokaslr " +
	"tsc=reliable no_timer_check intel_iommu=on iommu=pt"

// machine contains the settings for QEMU; see arguments. All paths are absolute paths on the host. They must not
// contain commas, because commas separate QEMU's options.
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

// hostFolder is a directory on the host that the machine mounts using its tag.
type hostFolder struct {
	tag, path string
	writable  bool
}

// numaNodes is the number of NUMA nodes. Physical functions alternate between them, each on its own PCIe root.
// Alignment tests need at least two nodes. All processors are on the first node; the second node has only memory.
const numaNodes = 2

// arguments returns QEMU's command line without the program name. The machine has two serial lines: the kernel's
// console, which is written to the file console.log, and the command's terminal, which is connected to QEMU's standard
// input and output. Unused devices are disabled, because an emulated boot would spend time probing them. Devices with
// fixed PCI addresses come first; otherwise, QEMU could assign their addresses to devices without a fixed address.
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
	args = append(args, m.hardware()...) // first, because the PCI addresses are fixed
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

// arguments returns the QEMU arguments for the NIC. They select QEMU's user-mode network, which requires neither a link
// nor privileges on the host: QEMU opens sockets in the network namespace in which its process was started.
func (u *Uplink) arguments() []string {
	network := fmt.Sprintf("user,id=uplink,ipv6=off,net=%s,host=%s", u.Subnet, u.Gateway)
	for _, port := range u.Ports {
		network += fmt.Sprintf(",hostfwd=tcp:127.0.0.1:%d-%s:%d", port, u.Machine, port)
	}
	return []string{"-netdev", network, "-device", "virtio-net-pci,bus=pcie.0,netdev=uplink,romfile=,mac=" +
		guest.UplinkMAC}
}

// hardware returns the QEMU arguments for NUMA nodes, PCIe and NICs. All NICs are on one network segment inside QEMU.
// Each physical function is behind its own root port on an expander bridge (pxb-pcie), which determines the function's
// NUMA node. The expander bridges' bus numbers start at 0x40 and 0x80. Each function is on the bus behind its root
// port, so the first function is 0000:41:00.0 and the second is 0000:81:00.0. The option romfile= disables boot ROMs,
// which the fetched packages do not contain.
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
