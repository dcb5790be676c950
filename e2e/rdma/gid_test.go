package rdma

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// verbs returns the RDMA device that the driver reports for the tenant's only step.
func (t *tenant) verbs() cnichain.VerbsDevice {
	t.Helper()
	verbs := t.Attachment.Steps[0].Verbs
	if verbs == nil || len(verbs.Devices) != 1 || verbs.Unknown != "" {
		t.Fatalf("the driver reported %+v, want one device", verbs)
	}
	return verbs.Devices[0]
}

// gidOf returns the RoCE v2 GID that the driver reports for an address on net1.
func (t *tenant) gidOf(address string) cnichain.GID {
	t.Helper()
	gids := t.verbs().GIDs
	position := slices.IndexFunc(gids, func(gid cnichain.GID) bool {
		return gid.Address == address && gid.Type == cnichain.GIDRoCEv2 && gid.Interface == "net1"
	})
	if position < 0 {
		t.Fatalf("the driver reports no RoCE v2 GID for %s on net1: %+v", address, gids)
	}
	return gids[position]
}

// shows checks that each GID reported by the driver matches sysfs in the pod.
func (t *tenant) shows() {
	t.Helper()
	device := t.verbs()
	port := "/sys/class/infiniband/" + device.Name + "/ports/1/"
	for _, gid := range device.GIDs {
		index := strconv.Itoa(gid.Index)
		output, err := t.command(context.Background(), "cat", port+"gids/"+index, port+"gid_attrs/types/"+index,
			port+"gid_attrs/ndevs/"+index).CombinedOutput()
		want := fmt.Sprintf("%s\n%s\n%s\n", gid.GID, gid.Type, gid.Interface)
		if have := strings.ReplaceAll(string(output), "IB/RoCE v1", cnichain.GIDRoCEv1); err != nil || have != want {
			t.Errorf("GID entry %s is %q (%v), but the driver reported %q", index, output, err, want)
		}
	}
	if t.uverbs(device.Name) != device.Verbs {
		t.Errorf("%s has the character device %s, but the driver reports %s", device.Name, t.uverbs(device.Name),
			device.Verbs)
	}
}

// talksBy exchanges messages using exactly the GID entries that the driver reports for two addresses. over is the
// server's address for the initial exchange over TCP.
func (t *tenant) talksBy(server *tenant, mine, theirs, over string) {
	t.Helper()
	pingPong := func(t *tenant, address string) []string {
		return []string{"ibv_rc_pingpong", "-d", t.verbs().Name, "-g", strconv.Itoa(t.gidOf(address).Index), "-n", "20"}
	}
	bandwidth := func(t *tenant, address string) []string {
		return []string{"ib_send_bw", "-d", t.verbs().Name, "-x", strconv.Itoa(t.gidOf(address).Index), "-n", "20",
			"-s", "4096", "-F"}
	}
	for _, command := range []func(*tenant, string) []string{pingPong, bandwidth} {
		t.end("", "").converse(server.end("", ""), command(server, theirs), append(command(t, mine), over))
	}
}

// In both modes, applications can send messages with the GID index that the driver reports for an address, regardless
// of which other addresses exist.
func TestChainTellsGIDs(t *testing.T) {
	const step = `[{name: nic, type: netdev, selector: {cel: "true"}, ifName: net1, rdma: {},
		config: {ipam: {type: static, addresses: [{address: 10.0.%[1]d.9/24}, {address: 10.0.0.%[1]d/24},
		{address: "fd00::%[1]d/64"}]}}}]`
	b := newBench(t, "")
	b.needsLab()
	links := b.rdmaFunctions(2)
	d := newDriver(b)
	left := d.tenant("left", fmt.Sprintf(step, 1), links[0], true)
	right := d.tenant("right", fmt.Sprintf(step, 2), links[1], true)
	for i, pod := range []*tenant{left, right} {
		pod.Attach()
		pod.shows()
		start := time.Now()
		d.Executor.VerbsReader().Read(pod.Attachment.Pin, pod.Attachment.Steps, 0)
		t.Logf("reading the table took %s", time.Since(start))
		for _, address := range []string{fmt.Sprintf("10.0.%d.9", i+1), fmt.Sprintf("10.0.0.%d", i+1),
			fmt.Sprintf("fd00::%d", i+1)} {
			pod.gidOf(address)
		}
		if first := pod.verbs().GIDs[0]; first.Type != cnichain.GIDRoCEv2 ||
			!strings.HasPrefix(first.Address, "10.0.") {
			t.Errorf("unexpected preferred GID %+v", first)
		}
	}
	right.talksBy(left, "10.0.0.2", "10.0.0.1", "10.0.0.1")
	right.talksBy(left, "fd00::2", "fd00::1", "10.0.0.1")

	// The application changes its addresses, so the kernel assigns different GID entries to them.
	left.WithLink("net1",
		func(link netlink.Link) error { return netlink.AddrDel(link, mask24("10.0.1.9")) },
		func(link netlink.Link) error { return netlink.AddrAdd(link, mask24("10.0.0.77")) })
	b.eventually("GID of another address", func() error {
		steps := left.Attachment.Steps
		steps[0].Verbs = d.Executor.VerbsReader().Read(left.Attachment.Pin, steps, 0)
		if text := fmt.Sprint(steps[0].Verbs); !strings.Contains(text, "10.0.0.77") ||
			strings.Contains(text, "10.0.1.9") {
			return errors.New(text)
		}
		return nil
	})
	left.shows()
	left.Detach()
	right.Detach()
	b.machine().sees("rxe0", "rxe1")
}

// If pods share a port through macvlan, the port has a single table with the GIDs of all pods, in which links are
// identified only by their names in the pods' namespaces. For each pod, the driver reports only the pod's own GIDs. If
// two pods have the same address, the driver cannot tell the GIDs apart, and reports this for both pods.
func TestChainTellsGIDsOfASharedPort(t *testing.T) {
	const step = `[{name: nic, type: macvlan, selector: {cel: "true"}, ifName: net1, rdma: {},
		config: {ipam: {type: static, addresses: [{address: 10.0.0.%d/24}]}}}]`
	b := newBench(t, shared)
	b.AddLink(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "port"}})
	b.must(netlink.LinkSetUp(b.LinkByName("port")))
	b.machine().addDevice("rxe0", "port")
	b.Cleanup(func() { _ = netlink.RdmaLinkDel("rxe0") })
	d := newDriver(b)
	first := d.tenant("first", fmt.Sprintf(step, 1), "port", false)
	second := d.tenant("second", fmt.Sprintf(step, 2), "port", false)
	first.Attach()
	second.Attach()
	for address, pod := range map[string]*tenant{"10.0.0.1": first, "10.0.0.2": second} {
		pod.shows()
		pod.gidOf(address)
		for _, gid := range pod.verbs().GIDs {
			if gid.Interface != "net1" || gid.Address != "" && !strings.HasPrefix(gid.Address, "fe80") &&
				gid.Address != address {
				t.Errorf("for the pod with address %s, the driver reported %+v", address, gid)
			}
		}
	}
	same := d.tenant("same", fmt.Sprintf(step, 2), "port", false)
	same.Attach()
	for _, pod := range []*tenant{second, same} {
		verbs := d.Executor.VerbsReader().Read(pod.Attachment.Pin, pod.Attachment.Steps, 0)
		if !strings.Contains(verbs.Unknown, "cannot be distinguished") ||
			strings.Contains(fmt.Sprint(verbs.Devices), "10.0.0.2") {
			t.Errorf("for a pod with another pod's address, the driver reported %+v, want unknown", verbs)
		}
	}
	for _, pod := range []*tenant{first, second, same} {
		pod.Detach()
	}
}

// mask24 returns an IPv4 address in a /24 network.
func mask24(address string) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(address).To4(), Mask: net.CIDRMask(24, 32)}}
}
