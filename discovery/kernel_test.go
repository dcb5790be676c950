package discovery_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/discovery"
)

// inNewNamespace moves the test's thread into new network and mount namespaces and returns the path at which a sysfs is
// mounted there. The thread is never unlocked, so it exits when the test ends.
func inNewNamespace(t *testing.T) (sysfs string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a network namespace")
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); err != nil {
		t.Skipf("cannot create namespaces here: %v", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Skipf("cannot make mounts private: %v", err)
	}
	dir := t.TempDir()
	if err := unix.Mount("sysfs", dir, "sysfs", 0, ""); err != nil {
		t.Skipf("cannot mount sysfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// openSysfs opens a sysfs, or a directory with the content of one, in the same way as Host.
func openSysfs(t testing.TB, path string) fs.ReadLinkFS {
	t.Helper()
	sys, err := discovery.OpenSysfs(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sys.Close)
	return sys
}

// must skips the test if the kernel does not support a link kind, and fails it on any other error.
func must(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skipf("the kernel cannot create this link: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// subscribed subscribes to the kernel's events and returns a function that waits for an event.
func subscribed(t *testing.T) (wait func(name string)) {
	t.Helper()
	changes := make(chan struct{}, 1)
	broken, err := discovery.KernelEvents().Subscribe(t.Context(), func() {
		select {
		case changes <- struct{}{}:
		default:
		}
	})
	must(t, err)
	return func(name string) {
		t.Helper()
		select {
		case <-changes:
		case err := <-broken:
			t.Fatal(err)
		case <-time.After(10 * time.Second):
			t.Fatal("no notification of " + name)
		}
	}
}

// This uevent is not accompanied by any change to links, as when a function is bound to another driver.
func TestKernelUevents(t *testing.T) {
	sysfs := inNewNamespace(t)
	wait := subscribed(t)
	if err := os.WriteFile(filepath.Join(sysfs, "class/net/lo/uevent"), []byte("change"), 0o200); err != nil {
		t.Skipf("cannot make the kernel send a uevent here: %v", err)
	}
	wait("a uevent")
}

func TestKernel(t *testing.T) {
	sys := openSysfs(t, inNewNamespace(t))
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	must(t, err)
	defer handle.Close()
	wait := subscribed(t)

	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
	must(t, handle.LinkAdd(bridge))
	must(t,
		handle.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "left", MasterIndex: bridge.Index},
			PeerName: "right"}))
	right, err := handle.LinkByName("right")
	must(t, err)
	must(t, handle.LinkSetUp(bridge))
	must(t, handle.LinkSetUp(right))
	_, all, err := net.ParseCIDR("0.0.0.0/0")
	must(t, err)
	must(t, handle.RouteAdd(&netlink.Route{LinkIndex: bridge.Index, Scope: netlink.SCOPE_LINK, Dst: all}))

	wait("new links")
	facts, err := discovery.Read(t.Context(), discovery.Sources{Sys: sys, Links: handle})
	must(t, err)
	check(t, facts, `
br0 bridge infrastructure
left veth master=br0 infrastructure
right veth
`)
}

// Another namespace's sysfs does not contain the links of this namespace.
func TestKernelSysfsOfAnotherNamespace(t *testing.T) {
	hostSys := openSysfs(t, "/sys")
	inNewNamespace(t)
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	must(t, err)
	defer handle.Close()
	must(t, handle.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "only-here"}}))
	if _, err := discovery.Read(t.Context(), discovery.Sources{Sys: hostSys, Links: handle}); err == nil {
		t.Error("links were read with the sysfs of another namespace")
	}
}

// The list of links matches the library's list, except for fields that are not requested. Querying links without
// virtual functions, or functions that do not exist, returns no hardware facts and no error.
func TestKernelHardware(t *testing.T) {
	inNewNamespace(t)
	kernel, err := discovery.OpenKernel()
	must(t, err)
	defer kernel.Close()
	must(t, kernel.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}))
	must(t, kernel.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "left"}, PeerName: "right"}))
	left, err := kernel.LinkByName("left")
	must(t, err)
	must(t, kernel.LinkAddAltName(left, "another"))
	want, err := kernel.Handle.LinkList()
	must(t, err)
	got, err := kernel.LinkList()
	must(t, err)
	// Newer kernels omit statistics that are not requested.
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(netlink.LinkAttrs{}, "Statistics")); diff != "" ||
		len(got) != 4 {
		t.Errorf("wrong links, %d in total (-want +got):\n%s", len(got), diff)
	}
	settings, err := kernel.VFs(left.Attrs().Index)
	if err != nil || len(settings) > 0 {
		t.Errorf("virtual functions of a veth = %v, %v, want none", settings, err)
	}
	if _, err := kernel.VFs(4711); err == nil {
		t.Error("VFs returned no error for a link that does not exist")
	}
	if mode := kernel.EswitchMode("0000:7f:00.0"); mode != "" {
		t.Errorf("eswitch mode of a function that does not exist = %q, want none", mode)
	}
	if mode := kernel.RDMANetns(); mode != "" && mode != discovery.RDMAShared && mode != discovery.RDMAExclusive {
		t.Errorf("unknown RDMA namespace mode %q", mode)
	}
}

// Netlink lists the same RDMA devices as sysfs in the same namespace, even if the query is made from another thread. A
// kernel without RDMA support does not have this kind of socket.
func TestKernelRDMA(t *testing.T) {
	sources, err := discovery.Host()
	must(t, err)
	defer sources.Close()
	var want []string
	entries, err := fs.ReadDir(sources.Sys, "class/infiniband")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, entry := range entries {
		want = append(want, entry.Name())
	}
	list := func() {
		t.Helper()
		devices, err := sources.Hardware.RDMADevices()
		if errors.Is(err, unix.EPROTONOSUPPORT) && len(want) == 0 {
			return
		}
		must(t, err)
		var got []string
		for _, d := range devices {
			got = append(got, d.Name)
			if _, err := sources.Hardware.RDMALinks(d.Index); err != nil {
				t.Errorf("ports of %s: %v", d.Name, err)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-sysfs +netlink):\n%s", diff)
		}
	}
	list()
	inNewNamespace(t)
	list()
}

// Soft RoCE on a veth is found, and a uevent reports it. In exclusive mode, the kernel creates RDMA devices in the
// initial namespace, so this test requires a machine in shared mode.
func TestKernelSoftRoCE(t *testing.T) {
	if _, err := os.Stat("/sys/module/rdma_rxe"); err != nil {
		t.Skip("needs the kernel module rdma_rxe to be loaded")
	}
	inNewNamespace(t)
	must(t, unix.Mount("sysfs", "/sys", "sysfs", 0, "")) // for this thread's namespaces
	sources, err := discovery.Host()
	must(t, err)
	defer sources.Close()
	if mode := sources.Hardware.RDMANetns(); mode != discovery.RDMAShared {
		t.Skipf("needs RDMA devices in shared mode, but the mode is %q", mode)
	}
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "v0"}, PeerName: "v1"}))
	for _, name := range []string{"v0", "v1"} {
		link, err := netlink.LinkByName(name)
		must(t, err)
		must(t, netlink.LinkSetUp(link))
	}
	socket, err := discovery.OpenUevents()
	must(t, err)
	defer func() { _ = socket.Close() }() // opened for reading only
	changes := make(chan struct{}, 1000)
	go func() { _ = discovery.ReadUevents(onlyRDMA{socket}, func() { changes <- struct{}{} }) }() // until socket closes
	await := func(what, want string) {
		t.Helper()
		for {
			if got := rdmaOf(readFrom(t, sources))["v0"]; got == want {
				return
			}
			select {
			case <-changes:
			case <-time.After(time.Minute):
				t.Fatalf("no RDMA uevent reported that the device %s", what)
			}
		}
	}
	must(t, netlink.RdmaLinkAdd("rxe_discovery", "rxe", "v0"))
	<-changes
	await("has come", "rxe_discovery ethernet shared")
	must(t, netlink.RdmaLinkDel("rxe_discovery"))
	<-changes
	await("has gone", "")
}

// onlyRDMA drops uevents for devices other than RDMA devices.
type onlyRDMA struct{ io.Reader }

func (r onlyRDMA) Read(buffer []byte) (int, error) {
	for {
		length, err := r.Reader.Read(buffer)
		if err != nil || bytes.Contains(buffer[:length], []byte("SUBSYSTEM=infiniband\x00")) {
			return length, err
		}
	}
}

// Entries that the kernel itself adds to a link that is up do not count as a use, but addresses, rules, and routes in
// any table do.
func TestKernelBusy(t *testing.T) {
	inNewNamespace(t)
	must(t, unix.Mount("sysfs", "/sys", "sysfs", 0, "")) // for this thread's namespaces
	sources, err := discovery.Host()
	must(t, err)
	defer sources.Close()
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "up0"}, PeerName: "up0p"}))
	link, err := netlink.LinkByName("up0")
	must(t, err)
	for _, name := range []string{"up0", "up0p"} {
		end, err := netlink.LinkByName(name)
		must(t, err)
		must(t, netlink.LinkSetUp(end))
	}
	must(t, netlink.AddrAdd(link, &netlink.Addr{IPNet: network("fe80::7/64"), Flags: unix.IFA_F_NODAD}))
	busy := func(want string) {
		t.Helper()
		uses, err := discovery.Busy(t.Context(), sources, "up0")
		use := uses["up0"]
		if err != nil || use.Restorable != (want != "") || (use.Reason == "") != (want == "") ||
			!strings.Contains(use.Reason, want) {
			t.Errorf("Busy returned %+v, %v; want reason %q", use, err, want)
		}
	}
	busy("")
	address := &netlink.Addr{IPNet: network("192.168.50.2/24")}
	must(t, netlink.AddrAdd(link, address))
	busy("it has the address 192.168.50.2/24")
	must(t, netlink.AddrDel(link, address))
	busy("")
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: network("10.200.0.0/16"), Table: 100,
		Scope: netlink.SCOPE_LINK}
	must(t, netlink.RouteAdd(route))
	busy("it has a route to 10.200.0.0/16 in table 100")
	must(t, netlink.RouteDel(route))
	rule := netlink.NewRule()
	rule.OifName, rule.Table, rule.Priority = "up0", 100, 1000
	must(t, netlink.RuleAdd(rule))
	busy("the routing rule with priority 1000 refers to it")
	must(t, netlink.RuleDel(rule))
	busy("")
	unrestorable := func(want string) {
		t.Helper()
		uses, err := discovery.Busy(t.Context(), sources, "up0", "absent")
		if use := uses["up0"]; err != nil || use.Restorable || !strings.Contains(use.Reason, want) || len(uses) != 1 {
			t.Errorf("Busy returned %+v, %v; want reason %q", uses, err, want)
		}
	}
	index := link.Attrs().Index
	multipath := &netlink.Route{Dst: network("10.200.0.0/16"), Table: 100, MultiPath: []*netlink.NexthopInfo{
		{LinkIndex: link.Attrs().ParentIndex}, {LinkIndex: index}}}
	must(t, netlink.RouteAdd(multipath))
	unrestorable("a path of the multipath route to 10.200.0.0/16 in table 100")
	must(t, netlink.RouteDel(multipath))
	standard := &netlink.Route{LinkIndex: index, Dst: network("0.0.0.0/0"), Scope: netlink.SCOPE_LINK}
	must(t, netlink.RouteAdd(standard))
	unrestorable("it carries a default route of the node")
	must(t, netlink.RouteDel(standard))
	top := &netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: "top", ParentIndex: index}}
	must(t, netlink.LinkAdd(top))
	unrestorable("the macvlan top is on top of it")
	must(t, netlink.LinkDel(top))
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
	must(t, netlink.LinkAdd(bridge))
	must(t, netlink.LinkSetMaster(link, bridge))
	unrestorable("it is a port of the bridge br0")
	must(t, netlink.LinkSetNoMaster(link))
	busy("")
	// The entries in the tables of a bridge and of a VXLAN move with the link.
	must(t, netlink.LinkAdd(&netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: "vx0"}, VxlanId: 7, Port: 4789,
		Group: net.IPv4(192, 168, 50, 7)}))
	for _, name := range []discovery.IfName{"br0", "vx0"} {
		uses, err := discovery.Busy(t.Context(), sources, name)
		if err != nil || len(uses) != 1 || uses[name].Reason != "" {
			t.Errorf("Busy(%s) returned %+v, %v; want no use", name, uses, err)
		}
	}
}
