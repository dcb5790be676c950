package sriov

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	testbench "github.com/dra-networking/dra-network-driver/e2e/internal/bench"
)

// The machine's physical functions, which are on different PCIe roots and NUMA nodes.
const (
	pf0 = "0000:41:00.0"
	pf1 = "0000:81:00.0"
)

// pluginState is the directory where the sriov plugin stores its records.
const pluginState = "/var/lib/cni/sriov"

// patience is the time limit for each operation in the virtual machine, where all code is emulated.
const patience = time.Minute

// TestMain runs this binary as one of three programs: the tests, a driver that the tests kill, or a CNI plugin that
// dies together with the driver.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv("CNI_COMMAND") != "":
		os.Exit(plug())
	case os.Getenv(workerVariable) != "":
		os.Exit(work())
	}
	os.Exit(m.Run())
}

// bench is the machine, with the virtual functions for a test.
type bench struct{ *testbench.Bench }

func (b *bench) must(err error) { b.Helper(); b.Must(err) }

func (b *bench) eventually(what string, check func() error) { b.Helper(); b.Eventually(what, check) }

// newBench creates the given number of virtual functions on each physical function, and removes them at the end of the
// test.
func newBench(t *testing.T, vfs int) *bench {
	t.Helper()
	b := &bench{testbench.New(t, patience, "use make sriov-test")}
	b.Exec("modprobe", "--all", "8021q", "bonding", "vfio-pci", "veth")
	b.must(os.RemoveAll(pluginState))
	for _, pf := range []string{pf0, pf1} {
		b.must(netlink.LinkSetUp(b.LinkOf(pf)))
		b.SetVFs(pf, 0)
		b.SetVFs(pf, vfs)
	}
	b.Cleanup(func() {
		for _, pf := range []string{pf0, pf1} {
			b.SetVFs(pf, 0)
		}
	})
	return b
}

// info returns a virtual function's settings as reported by its physical function.
func (b *bench) info(pf string, index int) netlink.VfInfo {
	b.Helper()
	vfs := b.LinkOf(pf).Attrs().Vfs
	position := slices.IndexFunc(vfs, func(vf netlink.VfInfo) bool { return vf.ID == index })
	if position < 0 {
		b.Fatalf("%s does not report virtual function %d", pf, index)
	}
	return vfs[position]
}

// settings formats a virtual function's settings as reported by its physical function.
func (b *bench) settings(pf string, index int) string {
	b.Helper()
	vf := b.info(pf, index)
	return fmt.Sprintf("vlan %d qos %d spoofchk %v trust %v rate %d", vf.Vlan, vf.Qos, vf.Spoofchk, vf.Trust == 1,
		vf.MaxTxRate)
}

// bind binds a PCI function to another driver.
func (b *bench) bind(address, driver string) {
	b.Helper()
	b.must(os.WriteFile(testbench.SysPCI(address, "driver", "unbind"), []byte(address), 0))
	b.must(os.WriteFile(testbench.SysPCI(address, "driver_override"), []byte(driver+"\n"), 0))
	b.must(os.WriteFile("/sys/bus/pci/drivers_probe", []byte(address), 0))
	target, err := os.Readlink(testbench.SysPCI(address, "driver"))
	b.must(err)
	if filepath.Base(target) != strings.TrimSpace(driver) && driver != "" {
		b.Fatalf("driver of %s = %s, want %s", address, filepath.Base(target), driver)
	}
}
