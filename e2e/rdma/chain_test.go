package rdma

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/cnichain/host"
	testbench "github.com/dra-networking/dra-network-driver/e2e/internal/bench"
)

// moving returns the steps of a topology whose plugin moves the device into the pod.
func moving(cniType string, pod int) string {
	return fmt.Sprintf(`[{name: nic, type: %s, selector: {cel: "true"}, ifName: net1, rdma: {},
		config: {ipam: {type: static, addresses: [{address: 10.0.0.%d/24}]}}}]`, cniType, pod)
}

// rdmaFunctions creates virtual functions with RDMA devices rxe0, rxe1, ..., and returns the names of their links.
func (b *bench) rdmaFunctions(count int) (links []string) {
	b.Helper()
	for i, address := range b.functions(count) {
		links = append(links, b.LinkOf(address).Attrs().Name)
		b.must(netlink.LinkSetUp(b.LinkByName(links[i])))
		b.machine().addDevice(fmt.Sprintf("rxe%d", i), links[i])
	}
	return links
}

// node returns the path of the character device for an RDMA device, whose name must be unique on the machine.
func (b *bench) node(device string) string { return "/dev/infiniband/" + b.uverbs(device) }

// An RDMA device moves into the pod together with its virtual function, works only in this pod, and returns to the
// machine afterwards.
func TestChainMovesRDMADevice(t *testing.T) {
	for _, cniType := range []string{"sriov", "host-device", "netdev"} {
		t.Run(cniType, func(t *testing.T) {
			b := newBench(t, exclusive)
			b.needsLab()
			links := b.rdmaFunctions(2)
			d := newDriver(b)
			left, right := d.tenant("left", moving(cniType, 1), links[0], true),
				d.tenant("right", moving(cniType, 2), links[1], true)
			left.Attach()
			right.Attach()
			b.machine().sees()
			left.sees("rxe0")
			right.sees("rxe1")
			for device, pod := range map[string]*tenant{"rxe0": left, "rxe1": right} {
				if diff := cmp.Diff([]string{"/dev/infiniband/rdma_cm", b.node(device)}, pod.nodes()); diff != "" {
					t.Errorf("device nodes of %s (-want +have):\n%s", device, diff)
				}
			}
			ends := []*end{left.end("rxe0", "10.0.0.1"), right.end("rxe1", "10.0.0.2")}
			b.opensOnlyInside(ends...)
			ends[1].talk(ends[0])
			b.must(d.Executor.Check(context.Background(), left.Attachment))
			left.Detach()
			right.Detach()
			b.machine().sees("rxe0", "rxe1")
			b.machine().has(links[0])
			b.machine().has(links[1])
		})
	}
}

// If two pods start concurrently, their devices sometimes swap numbers. Each pod must get its own device.
func TestChainsAtOnceGiveEachItsOwnDevice(t *testing.T) {
	b := newBench(t, exclusive)
	b.needsLab()
	links := b.rdmaFunctions(2)
	d := newDriver(b)
	changed := 0
	for round := range 50 {
		var pods []*tenant
		var before []string
		for i, link := range links {
			pods = append(pods, d.tenant(fmt.Sprintf("p%d%c", round, 'a'+i), moving("netdev", i+1), link, true))
			before = append(before, b.node(fmt.Sprintf("rxe%d", i)))
		}
		var group sync.WaitGroup
		results := make([]error, len(pods))
		for i, pod := range pods {
			group.Go(func() { results[i] = pod.Add() })
		}
		group.Wait()
		b.must(errors.Join(results...))
		for i, pod := range pods {
			node := b.node(fmt.Sprintf("rxe%d", i))
			if !slices.Contains(pod.nodes(), node) || len(pod.nodes()) != 2 {
				t.Errorf("round %d: pod %d has device nodes %q, want rdma_cm and %s", round, i, pod.nodes(), node)
			}
			if node != before[i] {
				changed++
			}
			b.must(pod.open(filepath.Base(node)))
			if err := pods[1-i].open(filepath.Base(node)); !errors.Is(err, unix.EPERM) {
				t.Errorf("round %d: opening %s in the other pod returned %v, want EPERM", round, node, err)
			}
		}
		for i, pod := range pods {
			group.Go(func() { results[i] = pod.Del() })
		}
		group.Wait()
		b.must(errors.Join(results...))
		for _, pod := range pods {
			cnitest.RemovePod(pod.Path)
		}
	}
	b.machine().sees("rxe0", "rxe1")
	t.Logf("%d of 100 moves changed a number", changed)
}

// If a driver is killed before or after any commit or any change to an RDMA device, the next driver recovers:
// afterwards, the function and the RDMA device are on the machine under their original names.
func TestChainKilledAnywhere(t *testing.T) {
	b := newBench(t, exclusive)
	b.needsLab()
	links := b.rdmaFunctions(1)
	for after, survived := 0, false; !survived && !t.Failed(); after++ {
		t.Run(fmt.Sprintf("at its call %d", after), func(t *testing.T) {
			b := &bench{b.With(t)}
			d := newDriver(b)
			pod := d.tenant("pod", moving("netdev", 1), links[0], true)
			d.RestartUntil(after)
			survived = testbench.Survives(func() {
				pod.Attach()
				pod.Detach()
			})
			d.Restart()
			for _, left := range d.Left {
				d.must(d.Executor.Del(context.Background(), left))
			}
			b.machine().sees("rxe0")
			b.machine().has(links[0])
			pod.sees()
		})
	}
}

// Whatever happens to an RDMA device in a pod, the device ends up back on the machine under its original name.
func TestChainWhoseRDMADeviceIsChanged(t *testing.T) {
	for name, change := range map[string]func(pod *tenant){
		"renamed in the pod": func(pod *tenant) { pod.rename("rxe0", "mine") },
		"moved to the machine by an administrator": func(pod *tenant) {
			pod.must(pod.moveDevice("rxe0", pod.machine()))
		},
		"namespace destroyed": func(pod *tenant) { pod.Destroy() },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, exclusive)
			b.needsLab()
			links := b.rdmaFunctions(1)
			d := newDriver(b)
			pod := d.tenant("pod", moving("netdev", 1), links[0], true)
			pod.Attach()
			change(pod)
			b.eventually("pod detached", pod.Del)
			b.machine().has(links[0])
			if devices := b.machine().devices(); !slices.Contains(devices, "rxe0") {
				t.Errorf("the machine has RDMA devices %q, want them to include rxe0", devices)
			}
		})
	}
}

// addOther creates an RDMA device on another link, in the machine's own namespace.
func (t *tenant) addOther(name string) {
	t.Helper()
	t.AddLink(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "other"}})
	t.machine().addDevice(name, "other")
	t.Cleanup(func() { _ = netlink.RdmaLinkDel(name) })
}

// If another device uses the RDMA device's original name, the function is quarantined for this reason until the name is
// free.
func TestChainWhoseRDMANameIsTaken(t *testing.T) {
	b := newBench(t, exclusive)
	b.needsLab()
	links := b.rdmaFunctions(1)
	d := newDriver(b)
	pod := d.tenant("pod", moving("netdev", 1), links[0], true)
	pod.Attach()
	pod.addOther("rxe0")
	pod.Destroy() // the kernel renames the device to ibdevN
	if err := pod.Del(); err == nil || !strings.Contains(err.Error(), "rxe0") {
		t.Errorf("DEL returned %v, want an error that names rxe0", err)
	}
	b.must(netlink.RdmaLinkDel("rxe0"))
	b.eventually("pod detached", pod.Del)
	b.machine().sees("rxe0")
	if device := b.uverbs("rxe0"); device == "" {
		t.Error("the device has no character device")
	}
}

// If an RDMA device is removed while it is in the pod, the function is quarantined for this reason until it has an RDMA
// device again.
func TestChainWhoseRDMADeviceIsRemoved(t *testing.T) {
	b := newBench(t, exclusive)
	b.needsLab()
	links := b.rdmaFunctions(1)
	d := newDriver(b)
	pod := d.tenant("pod", moving("netdev", 1), links[0], true)
	pod.Attach()
	pod.Inside(func() error { return netlink.RdmaLinkDel("rxe0") })
	b.eventually("RDMA device gone", func() error {
		if devices := pod.devices(); len(devices) > 0 {
			return fmt.Errorf("the pod has %q", devices)
		}
		return nil
	})
	if err := d.Executor.Check(context.Background(), pod.Attachment); err == nil ||
		!strings.Contains(err.Error(), "RDMA device rxe0 is gone") {
		t.Errorf("Check returned %v, want RDMA device rxe0 is gone", err)
	}
	device := *pod.Attachment.Steps[0].Step.Device
	for d.Executor.Quarantined(&device) == nil {
		if err := pod.Del(); err == nil && d.Executor.Quarantined(&device) == nil {
			t.Fatal("the function was restored without its RDMA device")
		}
	}
	if err := d.Executor.Quarantined(&device); !strings.Contains(err.Error(),
		"its RDMA device rxe0 is not on the host") {
		t.Errorf("quarantine reason = %v, want it to name rxe0", err)
	}
	b.machine().addDevice("rxe5", links[0]) // an administrator creates a new one
	for _, left := range d.Executor.Leftovers() {
		b.must(d.Executor.Retry(context.Background(), left.Key))
	}
	if err := d.Executor.Quarantined(&device); err != nil {
		t.Errorf("the function is still quarantined: %v", err)
	}
	b.machine().sees("rxe0")
}

// Debian's Soft RoCE removes its device when the link moves. The pod must not start without the device.
func TestChainWithoutItsRDMADevice(t *testing.T) {
	b := newBench(t, exclusive)
	b.needsLab()
	b.AddLink(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "veth0"}, PeerName: "veth1"})
	d := newDriver(b)
	b.machine().addDevice("rxe0", "veth0")
	pod := d.tenant("pod", moving("netdev", 1), "veth0", true)
	b.must(netlink.RdmaLinkDel("rxe0"))
	if err := pod.Add(); err == nil || !strings.Contains(err.Error(), "it has none; load the RDMA module") {
		t.Errorf("ADD without an RDMA device returned %v, want an error that says so", err)
	}
	b.machine().has("veth0")
}

// In shared mode, the device does not move. Only the sets of device nodes isolate pods from each other.
func TestChainInSharedMode(t *testing.T) {
	b := newBench(t, shared)
	b.needsLab()
	links := b.rdmaFunctions(2)
	d := newDriver(b)
	left, right := d.tenant("left", moving("sriov", 1), links[0], true), d.tenant("right", moving("sriov", 2),
		links[1], true)
	left.Attach()
	right.Attach()
	for device, pod := range map[string]*tenant{"rxe0": left, "rxe1": right} {
		if diff := cmp.Diff([]string{"/dev/infiniband/rdma_cm", b.node(device)}, pod.nodes()); diff != "" {
			t.Errorf("device nodes of %s (-want +have):\n%s", device, diff)
		}
	}
	ends := []*end{left.end("rxe0", "10.0.0.1"), right.end("rxe1", "10.0.0.2")}
	ends[1].talk(ends[0])
	left.Detach()
	right.Detach()
	b.machine().sees("rxe0", "rxe1")
}

// Several pods share a port through macvlan. Each pod gets the port's RDMA device, and also management devices if the
// topology requests them. In exclusive mode, the plan is rejected before anything has been changed.
func TestChainOnASharedPort(t *testing.T) {
	const step = `[{name: nic, type: macvlan, selector: {cel: "true"}, ifName: net1, rdma: {managementDevices: true},
		config: {ipam: {type: static, addresses: [{address: 10.0.0.%d/24}]}}}]`
	b := newBench(t, "")
	b.AddLink(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "port"}})
	b.machine().addDevice("rxe0", "port")
	b.Cleanup(func() { _ = netlink.RdmaLinkDel("rxe0") })
	d := newDriver(b)
	if mode, err := netlink.RdmaSystemGetNetnsMode(); err != nil || mode == exclusive {
		devices, err := host.Linux{}.RDMAPorts()
		b.must(err)
		if len(devices) != 1 || !slices.Equal(devices[0].Links, []int{b.LinkByName("port").Attrs().Index}) {
			t.Errorf("the machine has RDMA ports %+v, want one on the link port", devices)
		}
		return // unit tests cover the rejected plans
	}
	pods := []*tenant{d.tenant("one", fmt.Sprintf(step, 1), "port", false),
		d.tenant("two", fmt.Sprintf(step, 2), "port", false)}
	for _, pod := range pods {
		pod.Attach()
	}
	number := strings.TrimPrefix(b.uverbs("rxe0"), "uverbs")
	want := []string{"/dev/infiniband/rdma_cm", "/dev/infiniband/umad" + number, "/dev/infiniband/uverbs" + number}
	for _, pod := range pods {
		if diff := cmp.Diff(want, pod.nodes()); diff != "" {
			t.Errorf("device nodes (-want +have):\n%s", diff)
		}
		pod.Detach()
	}
	b.machine().sees("rxe0")
}
