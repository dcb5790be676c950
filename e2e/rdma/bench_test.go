package rdma

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	testbench "github.com/dra-networking/dra-network-driver/e2e/internal/bench"
)

// pf0 is one of the machine's physical functions.
const pf0 = "0000:41:00.0"

// The RDMA modes for network namespaces, as named by the kernel.
const (
	exclusive = "exclusive"
	shared    = "shared"
)

// patience is the time limit for each operation in the virtual machine, where all code is emulated.
const patience = 2 * time.Minute

// bench represents the machine.
type bench struct{ *testbench.Bench }

func (b *bench) must(err error) { b.Helper(); b.Must(err) }

func (b *bench) eventually(what string, check func() error) { b.Helper(); b.Eventually(what, check) }

// newBench returns the machine, and skips the test if the machine is in a different RDMA mode. An empty mode means any
// mode.
func newBench(t *testing.T, mode string) *bench {
	t.Helper()
	b := &bench{testbench.New(t, patience, "use make rdma-test")}
	have, err := netlink.RdmaSystemGetNetnsMode()
	if err != nil {
		t.Skipf("needs a machine with RDMA; use lab vm test --rdma: %v", err)
	}
	if mode != "" && mode != have {
		t.Skipf("needs a machine with --rdma=%s, but this machine's mode is %s", mode, have)
	}
	return b
}

// needsLab skips the test unless the machine has the lab's variant of Soft RoCE (e2e/vm/rxe), whose devices stay with
// their links.
func (b *bench) needsLab() {
	b.Helper()
	version, err := os.ReadFile("/sys/module/rdma_rxe/version")
	if err != nil || string(version) != "dra-network-lab\n" {
		b.Skip("needs the lab's variant of Soft RoCE, but the machine has Debian's; \"lab vm\" prints the reason")
	}
}

// functions creates virtual functions on the physical function pf0, waits until their links exist, and returns their
// PCI addresses. The functions are removed at the end of the test.
func (b *bench) functions(count int) (addresses []string) {
	b.Helper()
	b.must(netlink.LinkSetUp(b.LinkOf(pf0)))
	b.SetVFs(pf0, 0)
	b.SetVFs(pf0, count)
	b.Cleanup(func() { b.SetVFs(pf0, 0) })
	for i := range count {
		addresses = append(addresses, b.VF(pf0, i))
	}
	return addresses
}

// place is a network namespace.
type place struct {
	*bench
	*testbench.Pod
}

// machine returns the machine's own namespace.
func (b *bench) machine() *place { return &place{b, b.PodAt("/proc/1/ns/net")} }

// pod creates a namespace that is removed at the end of the test, or by cnitest.RemovePod.
func (b *bench) pod(name string) *place {
	b.Helper()
	p := &place{b, b.PodAt(cnitest.NewPod(b.T, name))}
	p.WithLink("lo", netlink.LinkSetUp)
	return p
}

// moveLink moves a link to another namespace.
func (p *place) moveLink(name string, target *place) {
	p.Helper()
	namespace, err := os.Open(target.Path)
	p.must(err)
	defer func() { _ = namespace.Close() }() // used only for reading
	p.WithLink(name, func(link netlink.Link) error { return netlink.LinkSetNsFd(link, int(namespace.Fd())) })
}

// moveDevice moves an RDMA device to another namespace.
func (p *place) moveDevice(name string, target *place) error {
	namespace, err := os.Open(target.Path)
	if err != nil {
		return err
	}
	defer func() { _ = namespace.Close() }() // used only for reading
	return p.Enter(func() error {
		device, err := netlink.RdmaLinkByName(name)
		if err != nil {
			return err
		}
		return netlink.RdmaLinkSetNsFd(device, uint32(namespace.Fd()))
	})
}

// addDevice creates a Soft RoCE device on a link in the namespace. In exclusive mode, the kernel creates the device in
// the machine's own namespace, regardless of where the link is.
func (p *place) addDevice(name, link string) {
	p.Helper()
	p.Inside(func() error { return netlink.RdmaLinkAdd(name, "rxe", link) })
}

// devices returns the sorted names of the RDMA devices that are visible in the namespace.
func (p *place) devices() (names []string) {
	p.Helper()
	p.Inside(func() error {
		devices, err := netlink.RdmaLinkList()
		for _, device := range devices {
			names = append(names, device.Attrs.Name)
		}
		return err
	})
	slices.Sort(names)
	return names
}

// address sets a link in the namespace up and assigns an address to it.
func (p *place) address(name, address string) {
	p.Helper()
	subnet, err := netlink.ParseAddr(address + "/24")
	p.must(err)
	p.WithLink(name, func(link netlink.Link) error { return netlink.AddrAdd(link, subnet) }, netlink.LinkSetUp)
}

// open opens and closes an RDMA character device in the namespace.
func (p *place) open(uverbs string) error {
	return p.Enter(func() error {
		file, err := os.OpenFile("/dev/infiniband/"+uverbs, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		return file.Close()
	})
}
