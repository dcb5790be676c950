package sriov

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	testbench "github.com/dra-networking/dra-network-driver/e2e/internal/bench"
)

// Request codes from linux/vfio.h, and the IOMMU type for PCs.
const (
	vfioGroupGetDevice    = 0x3b6a
	vfioGroupSetContainer = 0x3b68
	vfioSetIOMMU          = 0x3b66
	vfioType1             = 1
)

// While an application has a virtual function open, the function stays bound to the application's driver. Otherwise,
// the kernel, and therefore our driver, would have to wait until the application exits. The function is restored as
// soon as the application closes it.
func TestFunctionThatIsStillOpen(t *testing.T) {
	b := newBench(t, 1)
	d := newDriver(b)
	before := b.functionState()
	p := d.attach("open", `[{name: nic, type: sriov, driver: vfio-pci, config: {vlan: 77}}]`,
		function{"nic", pf0, 0})
	closeIt := b.open(b.VF(pf0, 0))
	if err := p.Del(); err == nil || !strings.Contains(err.Error(), "is still open in an application") {
		t.Errorf("DEL with an open function returned %v, want an error", err)
	}
	if driver := driverOf(b.VF(pf0, 0)); driver != "vfio-pci" {
		t.Errorf("driver of the application's function = %q, want vfio-pci", driver)
	}
	closeIt()
	p.Detach()
	b.expect(before)
}

// open opens a function in the same way as an application that drives it from user space.
func (b *bench) open(address string) (closeIt func()) {
	b.Helper()
	// The virtual machine's IOMMU does not remap interrupts.
	b.must(os.WriteFile("/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts", []byte("Y"), 0o600))
	group, err := filepath.EvalSymlinks(testbench.SysPCI(address, "iommu_group"))
	b.must(err)
	container, err := unix.Open("/dev/vfio/vfio", unix.O_RDWR, 0)
	b.must(err)
	opened, err := unix.Open("/dev/vfio/"+filepath.Base(group), unix.O_RDWR, 0)
	b.must(err)
	b.must(unix.IoctlSetPointerInt(opened, vfioGroupSetContainer, container))
	b.must(unix.IoctlSetInt(container, vfioSetIOMMU, vfioType1))
	name, err := unix.BytePtrFromString(address)
	b.must(err)
	device, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(opened), vfioGroupGetDevice, uintptr(unsafe.Pointer(name)))
	if errno != 0 {
		b.must(fmt.Errorf("cannot open %s: %w", address, errno))
	}
	return func() {
		for _, file := range []int{int(device), opened, container} {
			b.must(unix.Close(file))
		}
	}
}
