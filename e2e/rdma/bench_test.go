package rdma

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/e2e/vm/guest"
)

// pf0 is a physical function of the machine.
const pf0 = "0000:41:00.0"

// Modes of RDMA's network namespaces, as the kernel names them.
const (
	exclusive = "exclusive"
	shared    = "shared"
)

// patience is how long anything may take inside, where all code is emulated.
const patience = 2 * time.Minute

// The main thread must stay in the machine's namespace, since a main thread can't end: a pod that a goroutine has
// entered and not left would live as long as the process.
var _ = func() bool { runtime.LockOSThread(); return true }()

// bench is the machine.
type bench struct {
	*testing.T
}

// newBench skips the test in machines of another mode; an empty one means any.
func newBench(t *testing.T, mode string) *bench {
	t.Helper()
	if os.Getenv(guest.Variable) == "" {
		t.Skip("needs a machine with RDMA of its own: use make rdma-test")
	}
	have, err := netlink.RdmaSystemGetNetnsMode()
	if err != nil {
		t.Skipf("needs a machine with RDMA: use lab vm test --rdma: %v", err)
	}
	if mode != "" && mode != have {
		t.Skipf("needs a machine with --rdma=%s, and this one is %s", mode, have)
	}
	b := &bench{T: t}
	b.must(os.MkdirAll("/run/netns", 0o755))
	return b
}

// needsLab skips the test where Soft RoCE is not the lab's variant (e2e/vm/rxe), whose devices follow their links.
func (b *bench) needsLab() {
	b.Helper()
	version, err := os.ReadFile("/sys/module/rdma_rxe/version")
	if err != nil || string(version) != "dra-network-lab\n" {
		b.Skip("needs the lab's variant of Soft RoCE: the machine has Debian's, which \"lab vm\" tells why")
	}
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
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

func sysPCI(parts ...string) string {
	return filepath.Join(append([]string{"/sys/bus/pci/devices"}, parts...)...)
}

// functions gives the physical function pf0 new virtual ones, which it takes away at the end, and returns their PCI
// addresses when their links are there.
func (b *bench) functions(count int) (addresses []string) {
	b.Helper()
	uplinks, err := filepath.Glob(sysPCI(pf0, "net", "*"))
	b.must(err)
	if len(uplinks) != 1 {
		b.Fatalf("%s has the links %q, want one", pf0, uplinks)
	}
	b.must(netlink.LinkSetUp(b.link(filepath.Base(uplinks[0]))))
	b.setVFs(0)
	b.setVFs(count)
	b.Cleanup(func() { b.setVFs(0) })
	for i := range count {
		target, err := os.Readlink(sysPCI(pf0, fmt.Sprintf("virtfn%d", i)))
		b.must(err)
		addresses = append(addresses, filepath.Base(target))
	}
	return addresses
}

func (b *bench) setVFs(count int) {
	b.Helper()
	b.must(os.WriteFile(sysPCI(pf0, "sriov_numvfs"), []byte(strconv.Itoa(count)), 0))
	b.eventually(fmt.Sprintf("links of %d virtual functions", count), func() error {
		links, err := filepath.Glob(sysPCI(pf0, "virtfn*", "net", "*"))
		if err == nil && len(links) != count {
			err = fmt.Errorf("there are %q", links)
		}
		return err
	})
}

// linkOf is the name of the link of a PCI function that is in the machine's own namespace.
func (b *bench) linkOf(address string) (name string) {
	b.Helper()
	b.eventually("link of "+address, func() error {
		links, err := os.ReadDir(sysPCI(address, "net"))
		if err == nil && len(links) != 1 {
			err = fmt.Errorf("it has %d links here", len(links))
		}
		if err == nil {
			name = links[0].Name()
		}
		return err
	})
	return name
}

func (b *bench) link(name string) netlink.Link {
	b.Helper()
	link, err := netlink.LinkByName(name)
	b.must(err)
	return link
}

// add makes a link in the machine's own namespace, which it removes at the end if it is still there.
func (b *bench) add(link netlink.Link) {
	b.Helper()
	b.must(netlink.LinkAdd(link))
	b.Cleanup(func() {
		var missing netlink.LinkNotFoundError
		if err := netlink.LinkDel(link); err != nil && !errors.As(err, &missing) && !errors.Is(err, unix.ENODEV) {
			b.Error(err)
		}
	})
	b.must(netlink.LinkSetUp(link))
}

// place is a network namespace.
type place struct {
	*bench
	path string
}

// machine is the machine's own namespace.
func (b *bench) machine() *place { return &place{bench: b, path: "/proc/1/ns/net"} }

// pod makes a namespace, which ends with the test, or with cnitest.RemovePod.
func (b *bench) pod(name string) *place {
	b.Helper()
	p := &place{bench: b, path: cnitest.NewPod(b.T, name)}
	p.inside(func() error { return netlink.LinkSetUp(p.link("lo")) })
	return p
}

// enter runs in a thread that enters the namespace, and ends with it.
func (p *place) enter(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		file, err := os.Open(p.path)
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

// inside is enter for what must not fail.
func (p *place) inside(do func() error) {
	p.Helper()
	p.must(p.enter(do))
}

// moveLink moves a link to another namespace.
func (p *place) moveLink(name string, target *place) {
	p.Helper()
	namespace, err := os.Open(target.path)
	p.must(err)
	defer func() { _ = namespace.Close() }() // was only read
	p.inside(func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.LinkSetNsFd(link, int(namespace.Fd()))
	})
}

// moveDevice moves an RDMA device to another namespace.
func (p *place) moveDevice(name string, target *place) error {
	namespace, err := os.Open(target.path)
	if err != nil {
		return err
	}
	defer func() { _ = namespace.Close() }() // was only read
	return p.enter(func() error {
		device, err := netlink.RdmaLinkByName(name)
		if err != nil {
			return err
		}
		return netlink.RdmaLinkSetNsFd(device, uint32(namespace.Fd()))
	})
}

// addDevice makes an RDMA device of Soft RoCE on a link of the namespace. In exclusive mode the device is in the
// machine's own namespace, wherever the link is.
func (p *place) addDevice(name, link string) {
	p.Helper()
	p.inside(func() error { return netlink.RdmaLinkAdd(name, "rxe", link) })
}

// devices are the names of the RDMA devices that are seen in the namespace, in order.
func (p *place) devices() (names []string) {
	p.Helper()
	p.inside(func() error {
		devices, err := netlink.RdmaLinkList()
		for _, device := range devices {
			names = append(names, device.Attrs.Name)
		}
		return err
	})
	slices.Sort(names)
	return names
}

// address sets a link of the namespace up and gives it an address.
func (p *place) address(name, address string) {
	p.Helper()
	p.inside(func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		subnet, err := netlink.ParseAddr(address + "/24")
		if err != nil {
			return err
		}
		return errors.Join(netlink.AddrAdd(link, subnet), netlink.LinkSetUp(link))
	})
}

// open opens the character device of an RDMA device, as a process of the namespace does.
func (p *place) open(uverbs string) error {
	return p.enter(func() error {
		file, err := os.OpenFile("/dev/infiniband/"+uverbs, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		return file.Close()
	})
}
