package discovery_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/discovery"
)

// inNewNamespace moves the test's thread into network and mount namespaces of its own and returns a sysfs that was
// mounted there. The thread is never unlocked, so it ends with the test.
func inNewNamespace(t *testing.T) fs.ReadLinkFS {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a network namespace")
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); err != nil {
		t.Skipf("cannot make namespaces here: %v", err)
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
	return os.DirFS(dir).(fs.ReadLinkFS)
}

// must skips the test if the kernel has no such link kind, and fails it on other errors.
func must(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skipf("the kernel cannot make this link: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestKernel(t *testing.T) {
	sys := inNewNamespace(t)
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	must(t, err)
	defer handle.Close()
	changes := make(chan struct{}, 1)
	broken, err := discovery.KernelEvents().Subscribe(t.Context(), func() {
		select {
		case changes <- struct{}{}:
		default:
		}
	})
	must(t, err)

	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
	must(t, handle.LinkAdd(bridge))
	must(t, handle.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "left", MasterIndex: bridge.Index}, PeerName: "right"}))
	right, err := handle.LinkByName("right")
	must(t, err)
	must(t, handle.LinkSetUp(bridge))
	must(t, handle.LinkSetUp(right))
	_, all, err := net.ParseCIDR("0.0.0.0/0")
	must(t, err)
	must(t, handle.RouteAdd(&netlink.Route{LinkIndex: bridge.Index, Scope: netlink.SCOPE_LINK, Dst: all}))

	select {
	case <-changes:
	case err := <-broken:
		t.Fatal(err)
	case <-time.After(10 * time.Second):
		t.Fatal("no notification of the new links")
	}
	facts, err := discovery.Read(t.Context(), discovery.Sources{Sys: sys, Links: handle})
	must(t, err)
	check(t, facts, `
br0 bridge infrastructure
left veth master=br0 infrastructure
right veth
`)
}

// A sysfs of another namespace does not know the links of this one.
func TestKernelSysfsOfAnotherNamespace(t *testing.T) {
	hostSys, ok := os.DirFS("/sys").(fs.ReadLinkFS)
	if !ok {
		t.Fatal("os.DirFS reads no symbolic links")
	}
	inNewNamespace(t)
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	must(t, err)
	defer handle.Close()
	must(t, handle.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "only-here"}}))
	if _, err := discovery.Read(t.Context(), discovery.Sources{Sys: hostSys, Links: handle}); err == nil {
		t.Error("links were read without their sysfs")
	}
}
