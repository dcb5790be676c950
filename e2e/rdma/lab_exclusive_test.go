package rdma

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	testbench "github.com/dra-networking/dra-network-driver/e2e/internal/bench"
)

// uverbs is like findUverbs, but fails the test on error.
func (b *bench) uverbs(device string) string {
	b.Helper()
	found, err := findUverbs(device)
	b.must(err)
	return found
}

// findUverbs returns the name of an RDMA device's character device. The RDMA device's name must be unique on the
// machine, because in every namespace, this sysfs class lists all devices on the machine.
func findUverbs(device string) (found string, err error) {
	nodes, err := filepath.Glob("/sys/class/infiniband_verbs/uverbs*/ibdev")
	if err != nil {
		return "", err
	}
	for _, node := range nodes {
		name, err := os.ReadFile(node)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			continue // another device, which has been moved in the meantime
		}
		if err != nil {
			return "", err
		}
		if strings.TrimSpace(string(name)) == device {
			found = filepath.Base(filepath.Dir(node))
		}
	}
	if found == "" {
		return "", fmt.Errorf("found no character device for %s among %q", device, nodes)
	}
	return found, nil
}

// sees checks that exactly the given RDMA devices are visible in a namespace.
func (p *place) sees(want ...string) {
	p.Helper()
	if have := p.devices(); !slices.Equal(have, want) {
		p.Errorf("%s has the RDMA devices %q, want %q", p.Path, have, want)
	}
}

// has checks that a namespace contains a link.
func (p *place) has(link string) {
	p.Helper()
	p.WithLink(link)
}

// functionPair creates two virtual functions with the RDMA devices rxe0 and rxe1, and two pods. It does not move
// anything into the pods.
func (b *bench) functionPair() (left, right *end, links []string) {
	b.Helper()
	b.needsLab()
	for i, address := range b.functions(2) {
		links = append(links, b.LinkOf(address).Attrs().Name)
		b.must(netlink.LinkSetUp(b.LinkByName(links[i])))
		b.machine().addDevice(fmt.Sprintf("rxe%d", i), links[i])
	}
	return &end{place: b.pod("left"), device: "rxe0", address: "10.0.0.1"},
		&end{place: b.pod("right"), device: "rxe1", address: "10.0.0.2"}, links
}

// A virtual function and its RDMA device can move to a pod in either order, work there, and return in either order.
func TestLabFunctionAndDeviceMoveTogether(t *testing.T) {
	b := newBench(t, exclusive)
	left, right, links := b.functionPair()
	machine := b.machine()
	machine.sees("rxe0", "rxe1")
	for i, device := range []string{"rxe0", "rxe1"} {
		if _, err := os.Stat(testbench.SysPCI(b.addressOf(links[i]), "infiniband", device)); err != nil {
			b.Errorf("the RDMA device is not below its PCI function in sysfs: %v", err)
		}
	}
	b.must(machine.moveDevice("rxe0", left.place))
	machine.moveLink(links[0], left.place)
	machine.moveLink(links[1], right.place)
	machine.sees("rxe1") // the link has moved, but the device has not
	b.must(machine.moveDevice("rxe1", right.place))
	machine.sees()
	left.sees("rxe0")
	right.sees("rxe1")
	left.place.address(links[0], left.address)
	right.place.address(links[1], right.address)
	right.talk(left)
	b.opensOnlyInside(left, right)

	left.moveLink(links[0], machine)
	b.must(left.moveDevice("rxe0", machine))
	b.must(right.moveDevice("rxe1", machine))
	right.moveLink(links[1], machine)
	machine.sees("rxe0", "rxe1")
	machine.has(links[0])
	machine.has(links[1])

	for i, e := range []*end{right, left} { // each moves to where the other one was
		machine.moveLink(links[i], e.place)
		b.must(machine.moveDevice(fmt.Sprintf("rxe%d", i), e.place))
		e.device = fmt.Sprintf("rxe%d", i)
		e.place.address(links[i], e.address)
	}
	left.rping(right)
}

// addressOf returns the PCI address of a link in the machine's own namespace.
func (b *bench) addressOf(link string) string {
	b.Helper()
	target, err := os.Readlink("/sys/class/net/" + link + "/device")
	b.must(err)
	return filepath.Base(target)
}

// opensOnlyInside checks that only processes in a device's namespace can open the device. Processes in other
// namespaces, even if they run as root, cannot open it, although they can see its device node.
func (b *bench) opensOnlyInside(ends ...*end) {
	b.Helper()
	for _, e := range ends {
		node := b.uverbs(e.device)
		if err := e.open(node); err != nil {
			b.Errorf("cannot open %s of %s in its own namespace: %v", node, e.device, err)
		}
		for _, other := range append([]*end{{place: b.machine()}}, ends...) {
			if err := other.open(node); other != e && !errors.Is(err, unix.EPERM) {
				b.Errorf("opening %s of %s in %s returned %v, want EPERM", node, e.device, other.Path, err)
			}
		}
	}
}

// When a namespace is destroyed, the kernel returns the function and the RDMA device to the machine. If the RDMA
// device's name is in use there, the kernel chooses another name.
func TestLabEndOfNamespace(t *testing.T) {
	b := newBench(t, exclusive)
	left, right, links := b.functionPair()
	machine := b.machine()
	for i, e := range []*end{left, right} {
		machine.moveLink(links[i], e.place)
		b.must(machine.moveDevice(e.device, e.place))
	}
	b.AddLink(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "other"}})
	machine.addDevice("rxe1", "other") // the same name as the pod's device
	cnitest.RemovePod(left.Path)
	cnitest.RemovePod(right.Path)
	b.eventually("RDMA devices at home", func() error {
		have := machine.devices()
		if len(have) != 3 || !strings.HasPrefix(have[0], "ibdev") || have[1] != "rxe0" || have[2] != "rxe1" {
			return fmt.Errorf("the RDMA devices are %q, want rxe0, rxe1 and an ibdev", have)
		}
		return nil
	})
	for _, link := range links {
		b.eventually("link "+link+" at home", func() error {
			_, err := netlink.LinkByName(link)
			return err
		})
	}
	node := testbench.SysPCI(b.addressOf(links[1]), "infiniband", machine.devices()[0])
	if _, err := os.Stat(node); err != nil {
		b.Errorf("the renamed device does not belong to the function: %v", err)
	}
}

// vethPair creates two pods that are connected by a veth pair, and then creates the RDMA devices rxe0 and rxe1 on its
// ends. This order also works with Debian's Soft RoCE.
func (b *bench) vethPair() (left, right *end) {
	b.Helper()
	left = &end{place: b.pod("left"), device: "rxe0", address: "10.0.0.1"}
	right = &end{place: b.pod("right"), device: "rxe1", address: "10.0.0.2"}
	b.AddLink(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "veth0"}, PeerName: "veth1"})
	for i, e := range []*end{left, right} {
		link := fmt.Sprintf("veth%d", i)
		b.machine().moveLink(link, e.place)
		e.place.address(link, e.address)
		e.addDevice(e.device, link)
	}
	return left, right
}

// If an RDMA device is created on a link inside a pod, it is initially in the machine's namespace, and works in the
// pod's namespace once it has been moved there.
func TestLabDeviceMovesToItsLink(t *testing.T) {
	b := newBench(t, exclusive)
	left, right := b.vethPair()
	b.machine().sees("rxe0", "rxe1")
	for _, e := range []*end{left, right} {
		b.must(b.machine().moveDevice(e.device, e.place))
		e.sees(e.device)
	}
	right.pingPong(left, 4096)
	right.sendBandwidth(left)
	b.opensOnlyInside(left, right)
	for _, e := range []*end{left, right} {
		b.must(e.moveDevice(e.device, b.machine()))
	}
	b.machine().sees("rxe0", "rxe1")
}

// When a device moves, it releases its number and is then assigned the lowest free number. Therefore, the names of
// device nodes must be looked up after a move.
func TestLabNumberChangesWithMove(t *testing.T) {
	b := newBench(t, exclusive)
	pod := b.pod("pod")
	before := map[string]string{}
	for i, name := range []string{"rxe0", "rxe1"} {
		link := fmt.Sprintf("plain%d", i)
		b.AddLink(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: link}})
		b.machine().addDevice(name, link)
		before[name] = b.uverbs(name)
	}
	b.must(netlink.RdmaLinkDel("rxe0"))
	b.must(b.machine().moveDevice("rxe1", pod))
	if diff := cmp.Diff(before["rxe0"], b.uverbs("rxe1")); diff != "" {
		b.Errorf("node of rxe1, which was %s (-want +have):\n%s", before["rxe1"], diff)
	}
}
