package rdma

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// opensEverywhere checks that processes in every namespace can open a device.
func (b *bench) opensEverywhere(ends ...*end) {
	b.Helper()
	for _, e := range ends {
		for _, other := range append([]*end{{place: b.machine()}}, ends...) {
			if err := other.open(b.uverbs(e.device)); err != nil {
				b.Errorf("cannot open %s in %s: %v", e.device, other.Path, err)
			}
		}
	}
}

// In shared mode, an RDMA device cannot be moved.
func TestLabSharedDeviceCannotMove(t *testing.T) {
	b := newBench(t, shared)
	pod := b.pod("pod")
	b.AddLink(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "plain0"}})
	b.machine().addDevice("rxe0", "plain0")
	if err := b.machine().moveDevice("rxe0", pod); !errors.Is(err, unix.EOPNOTSUPP) {
		b.Errorf("moving the device returned %v, want EOPNOTSUPP", err)
	}
	b.machine().sees("rxe0")
	pod.sees("rxe0")
}

// In shared mode, an RDMA device on a pod's macvlan works in the pod. The device is visible in every namespace, and
// processes in every namespace can open it.
func TestLabSharedMacvlan(t *testing.T) {
	b := newBench(t, shared)
	b.AddLink(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "parent"}})
	var ends []*end
	for i, name := range []string{"left", "right"} {
		e := &end{place: b.pod(name), device: fmt.Sprintf("rxe%d", i), address: fmt.Sprintf("10.0.0.%d", i+1)}
		link := fmt.Sprintf("macvlan%d", i)
		b.AddLink(&netlink.Macvlan{Mode: netlink.MACVLAN_MODE_BRIDGE, LinkAttrs: netlink.LinkAttrs{Name: link,
			ParentIndex: b.LinkByName("parent").Attrs().Index}})
		b.machine().moveLink(link, e.place)
		e.place.address(link, e.address)
		e.addDevice(e.device, link)
		ends = append(ends, e)
	}
	for _, p := range []*place{b.machine(), ends[0].place, ends[1].place} {
		p.sees("rxe0", "rxe1")
	}
	ends[1].talk(ends[0])
	b.opensEverywhere(ends...)
}

// In shared mode, a virtual function moves to a pod without its RDMA device, but the device still works in the pod.
func TestLabSharedFunction(t *testing.T) {
	b := newBench(t, shared)
	left, right, links := b.functionPair()
	for i, e := range []*end{left, right} {
		b.machine().moveLink(links[i], e.place)
		e.place.address(links[i], e.address)
		e.sees("rxe0", "rxe1")
	}
	right.talk(left)
	b.opensEverywhere(left, right)
	for i, e := range []*end{left, right} {
		e.moveLink(links[i], b.machine())
	}
	b.machine().sees("rxe0", "rxe1")
}
