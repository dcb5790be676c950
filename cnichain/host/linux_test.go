package host

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// inNewNamespace runs the test on a thread in a new network namespace, and returns the path to a second namespace.
func inNewNamespace(t *testing.T) (other string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	runtime.LockOSThread() // never unlocked: the thread terminates with the test, and its namespace is destroyed
	second, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = second.Close() })
	first, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = first.Close() })
	return fmt.Sprintf("/proc/self/fd/%d", int(second))
}

func TestLinuxHostRestoresADevice(t *testing.T) {
	inNewNamespace(t)
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 0xa}
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "up0", MTU: 1500, HardwareAddr: mac}, PeerName: "peer0"}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	boot, err := Linux{}.Boot()
	if err != nil {
		t.Fatal(err)
	}
	device := cnichain.Device{Name: "up0", IfName: "up0",
		Baseline: cnichain.Baseline{BootID: boot, MTU: 1500, MAC: mac.String(), Up: true}}
	// A baseline recorded by an earlier driver version does not include this name.
	if err := netlink.LinkAddAltName(veth, "of-the-admin"); err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetMTU(veth, 1400); err != nil {
		t.Fatal(err)
	}
	if err := (Linux{}).Restore(device); err != nil {
		t.Fatal(err)
	}
	link, err := netlink.LinkByName("up0")
	if err != nil {
		t.Fatal(err)
	}
	if attrs := link.Attrs(); attrs.MTU != 1500 || len(attrs.AltNames) != 1 ||
		attrs.HardwareAddr.String() != device.MAC || attrs.Flags&1 == 0 {
		t.Errorf("wrong attributes of the device: %+v", attrs)
	}
	other := device
	other.MAC = "02:00:00:00:00:0b" // only the name matches
	if err := (Linux{}).Restore(other); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error for another link with the same name = %v, want ErrNotExist", err)
	}
	device.IfName = "gone"
	if err := (Linux{}).Restore(device); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error for a missing device = %v, want ErrNotExist", err)
	}
}

// Two devices that arrive on the host with each other's names both regain their own, regardless of the order.
func TestLinuxHostRestoresExchangedNames(t *testing.T) {
	inNewNamespace(t)
	var devices []cnichain.Device
	for i, name := range []string{"up0", "up1"} {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "peer" + name}
		if err := netlink.LinkAdd(veth); err != nil {
			t.Fatal(err)
		}
		device, err := (Linux{}).Snapshot(cnichain.Device{Name: name, IfName: name})
		if err != nil {
			t.Fatal(err)
		}
		devices = append(devices, device)
		if err := netlink.LinkSetName(veth, fmt.Sprintf("away%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range []string{"up1", "up0"} {
		link, err := netlink.LinkByIndex(devices[i].Index)
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetName(link, name); err != nil {
			t.Fatal(err)
		}
	}
	if err := (Linux{}).Restore(devices[0]); !errors.Is(err, unix.EEXIST) {
		t.Errorf("error for restoring the first device while the second has its name = %v", err)
	}
	for _, i := range []int{1, 0, 1} {
		if err := (Linux{}).Restore(devices[i]); err != nil {
			t.Errorf("cannot restore device %d: %v", i, err)
		}
	}
}

func TestLinuxHostPinsANamespace(t *testing.T) {
	other := inNewNamespace(t)
	host := Linux{}
	pin := filepath.Join(t.TempDir(), "netns", "dra-x")
	t.Cleanup(func() { _ = host.Unpin(pin) })
	if host.Exists(pin) {
		t.Error("Exists returned true before the namespace was pinned")
	}
	for range 2 {
		if err := host.Pin(other, pin); err != nil {
			t.Skipf("cannot mount file systems on this machine: %v", err)
		}
	}
	links, err := host.Links(pin)
	if err != nil || len(links) != 1 || links[0].Name != "lo" || !host.Exists(pin) {
		t.Errorf("links = %v, %v, want only lo", links, err)
	}
	for range 2 {
		if err := host.Unpin(pin); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(pin); !os.IsNotExist(err) {
		t.Errorf("the pin still exists: %v", err)
	}
	if err := host.Pin("/etc/passwd", pin); err == nil {
		t.Error("a file that is not a namespace was pinned")
	}
}

// A link that has the device's name only as an alternative name is not the device.
func TestSnapshotIsOfTheLinkWithTheName(t *testing.T) {
	inNewNamespace(t)
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eno1"}, PeerName: "peer0"}
	if err := errors.Join(netlink.LinkAdd(link), netlink.LinkAddAltName(link, "up0")); err != nil {
		t.Fatal(err)
	}
	_, err := (Linux{}).Snapshot(cnichain.Device{Name: "up0", IfName: "up0"})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("unexpected error: %v", err)
	}
	if now, err := (Linux{}).Snapshot(cnichain.Device{Name: "eno1", IfName: "eno1"}); now.Index == 0 || err != nil {
		t.Errorf("snapshot = %+v, %v, want one with an index", now, err)
	}
}
