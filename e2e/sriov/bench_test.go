package sriov

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/e2e/vm/guest"
)

// The physical functions of the machine, which are on different PCIe roots and NUMA nodes.
const (
	pf0 = "0000:41:00.0"
	pf1 = "0000:81:00.0"
)

// pluginState is where the sriov plugin keeps its records.
const pluginState = "/var/lib/cni/sriov"

// patience is how long anything may take inside, where all code is emulated.
const patience = time.Minute

// The main thread must stay in the host's namespace, since a main thread can't end: a pod that a goroutine has entered
// and not left would live as long as the process.
var _ = func() bool { runtime.LockOSThread(); return true }()

// TestMain makes this binary three programs: the tests, a driver that they kill, and a CNI plugin that dies with it.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv("CNI_COMMAND") != "":
		os.Exit(plug())
	case os.Getenv(workerVariable) != "":
		os.Exit(work())
	}
	os.Exit(m.Run())
}

// bench is the machine, with the virtual functions of a test.
type bench struct {
	*testing.T
}

// newBench gives both physical functions new virtual ones, and takes them away at the end.
func newBench(t *testing.T, vfs int) *bench {
	t.Helper()
	if os.Getenv(guest.Variable) == "" {
		t.Skip("needs a machine with SR-IOV of its own: use make sriov-test")
	}
	b := &bench{T: t}
	b.command("modprobe", "--all", "8021q", "bonding", "vfio-pci", "veth")
	b.must(os.MkdirAll("/run/netns", 0o755))
	b.must(os.RemoveAll(pluginState))
	for _, pf := range []string{pf0, pf1} {
		b.must(netlink.LinkSetUp(b.link(pf)))
		b.setVFs(pf, 0)
		b.setVFs(pf, vfs)
	}
	b.Cleanup(func() {
		for _, pf := range []string{pf0, pf1} {
			b.setVFs(pf, 0)
		}
	})
	return b
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) command(name string, args ...string) {
	b.Helper()
	if output, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		b.Fatalf("%s %v: %v: %s", name, args, err, output)
	}
}

func sysPCI(parts ...string) string {
	return filepath.Join(append([]string{"/sys/bus/pci/devices"}, parts...)...)
}

// setVFs changes the number of virtual functions, and returns when all links are there.
func (b *bench) setVFs(pf string, count int) {
	b.Helper()
	b.must(os.WriteFile(sysPCI(pf, "sriov_numvfs"), []byte(strconv.Itoa(count)), 0))
	b.eventually(fmt.Sprintf("links of %d virtual functions of %s", count, pf), func() error {
		links, err := filepath.Glob(sysPCI(pf, "virtfn*", "net", "*"))
		if err == nil && len(links) != count {
			err = fmt.Errorf("there are %q", links)
		}
		return err
	})
}

// vf is the PCI address of a virtual function.
func (b *bench) vf(pf string, index int) string {
	b.Helper()
	target, err := os.Readlink(sysPCI(pf, fmt.Sprintf("virtfn%d", index)))
	b.must(err)
	return filepath.Base(target)
}

// link is the link of a PCI function that is on the host.
func (b *bench) link(address string) netlink.Link {
	b.Helper()
	link, err := linkOf(address)
	b.must(err)
	return link
}

func linkOf(address string) (netlink.Link, error) {
	links, err := os.ReadDir(sysPCI(address, "net"))
	if err != nil {
		return nil, err
	}
	if len(links) != 1 {
		return nil, fmt.Errorf("%s has %d links here, want one", address, len(links))
	}
	return netlink.LinkByName(links[0].Name())
}

// info is what a physical function says of its virtual one.
func (b *bench) info(pf string, index int) netlink.VfInfo {
	b.Helper()
	vfs := b.link(pf).Attrs().Vfs
	position := slices.IndexFunc(vfs, func(vf netlink.VfInfo) bool { return vf.ID == index })
	if position < 0 {
		b.Fatalf("%s says nothing of its virtual function %d", pf, index)
	}
	return vfs[position]
}

// settings describes a virtual function as its physical function has it.
func (b *bench) settings(pf string, index int) string {
	b.Helper()
	vf := b.info(pf, index)
	return fmt.Sprintf("vlan %d qos %d spoofchk %v trust %v rate %d", vf.Vlan, vf.Qos, vf.Spoofchk, vf.Trust == 1,
		vf.MaxTxRate)
}

// eventually repeats a look until it finds nothing wrong.
func (b *bench) eventually(what string, condition func() error) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			b.Fatalf("no %s after %s: %v", what, patience, err)
		}
	}
}

// bind gives a PCI function another driver.
func (b *bench) bind(address, driver string) {
	b.Helper()
	b.must(os.WriteFile(sysPCI(address, "driver", "unbind"), []byte(address), 0))
	b.must(os.WriteFile(sysPCI(address, "driver_override"), []byte(driver+"\n"), 0))
	b.must(os.WriteFile("/sys/bus/pci/drivers_probe", []byte(address), 0))
	target, err := os.Readlink(sysPCI(address, "driver"))
	b.must(err)
	if filepath.Base(target) != strings.TrimSpace(driver) && driver != "" {
		b.Fatalf("%s has the driver %s, want %s", address, filepath.Base(target), driver)
	}
}

// errStill is the error of a look at something that has not happened.
var errStill = errors.New("it is still as before")

// inThread runs in a thread that enters the network namespace at path, and ends with it.
func inThread(path string, do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		file, err := os.Open(path)
		if err == nil {
			err = errors.Join(unix.Setns(int(file.Fd()), unix.CLONE_NEWNET), file.Close())
		}
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}
