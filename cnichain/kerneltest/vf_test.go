package kerneltest

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/host"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// virtualFunction returns the virtual function that the tests may modify, whose PCI address is in KERNELTEST_VF. The
// virtual function must not be in use, and the tests run in its namespace rather than in one of their own.
func virtualFunction(t *testing.T) cnichain.Device {
	t.Helper()
	address := os.Getenv("KERNELTEST_VF")
	if address == "" {
		t.Skip("needs an SR-IOV virtual function: set KERNELTEST_VF to the PCI address of an unused one")
	}
	dir := filepath.Join("/sys/bus/pci/devices", address)
	pf, err := os.Readlink(filepath.Join(dir, "physfn"))
	if err != nil {
		t.Fatal(err)
	}
	links, err := os.ReadDir(filepath.Join(dir, "net"))
	if err != nil || len(links) == 0 {
		t.Fatalf("%s has no link in this namespace: %v", address, err)
	}
	return cnichain.Device{
		Name: "vf", IfName: links[0].Name(), PCIAddress: address, PF: filepath.Base(pf), Exclusive: true,
		CNIs: movers(),
	}
}

// vfBench provides a virtual function with settings made by an administrator.
type vfBench struct {
	testHost
	pf       netlink.Link
	index    int
	baseline cnichain.Device
}

func newVFBench(t *testing.T) *vfBench {
	device := virtualFunction(t)
	v := &vfBench{testHost: testHost{T: t}}
	links, err := os.ReadDir(filepath.Join("/sys/bus/pci/devices", device.PF, "net"))
	v.must(err)
	v.pf, err = netlink.LinkByName(links[0].Name())
	v.must(err)
	functions, err := filepath.Glob(filepath.Join("/sys/bus/pci/devices", device.PF, "virtfn*"))
	v.must(err)
	for i := range functions {
		if target, err := os.Readlink(functions[i]); err == nil && filepath.Base(target) == device.PCIAddress {
			v.index, err = strconv.Atoi(strings.TrimPrefix(filepath.Base(functions[i]), "virtfn"))
			v.must(err)
		}
	}
	v.must(netlink.LinkSetVfVlanQos(v.pf, v.index, 5, 2)) // the administrator's setting
	v.must(netlink.LinkSetVfTrust(v.pf, v.index, true))
	v.baseline, err = host.Linux{}.Snapshot(device)
	v.must(err)
	if v.baseline.VF == nil || v.baseline.VF.VLAN != 5 || v.baseline.VF.QoS != 2 || !v.baseline.VF.Trust ||
		v.baseline.Driver == "" {
		t.Fatalf("wrong baseline: %+v, %+v", v.baseline, v.baseline.VF)
	}
	return v
}

// spoil makes every change that a malicious pod could make to the virtual function.
func (v *vfBench) spoil(handle *netlink.Handle, name string) {
	v.Helper()
	v.must(netlink.LinkSetVfVlanQos(v.pf, v.index, 77, 0))
	v.must(netlink.LinkSetVfSpoofchk(v.pf, v.index, !v.baseline.VF.SpoofChk))
	v.must(netlink.LinkSetVfTxRate(v.pf, v.index, 100))
	v.must(netlink.LinkSetVfHardwareAddr(v.pf, v.index, []byte{2, 0, 0, 0, 0, 0x99}))
	link, err := handle.LinkByName(name)
	v.must(err)
	v.must(handle.LinkSetDown(link))
	v.must(handle.LinkSetHardwareAddr(link, []byte{2, 0, 0, 0, 0, 0x99}))
	v.must(handle.LinkSetMTU(link, 1280))
	v.must(handle.LinkSetName(link, "mine"))
}

// awaitReturn waits until the function is in its original state. After its namespace has been destroyed, the function
// is briefly not in any namespace.
func (v *vfBench) awaitReturn() {
	v.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for {
		err := host.Linux{}.Restore(v.baseline)
		if err == nil {
			break
		}
		select {
		case <-tick.C:
		case <-deadline:
			v.Fatal(err)
		}
	}
	now, err := host.Linux{}.Snapshot(v.baseline)
	v.must(err)
	now.Index = v.baseline.Index // differs if the old index was taken
	if diff := cmp.Diff(v.baseline, now); diff != "" {
		v.Errorf("the function is not in its original state (-before +now):\n%s", diff)
	}
}

// A claim for a NIC also covers the upper devices of the NIC's virtual functions.
func TestLinksOnVFsKnowTheNIC(t *testing.T) {
	device := virtualFunction(t)
	v := &testHost{T: t}
	function, err := netlink.LinkByName(device.IfName)
	v.must(err)
	upper := &netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: "upper0", ParentIndex: function.Attrs().Index}}
	v.must(netlink.LinkAdd(upper))
	t.Cleanup(func() { v.must(netlink.LinkDel(upper)) })
	now, err := host.Linux{}.Snapshot(cnichain.Device{Name: "upper0", IfName: "upper0"})
	v.must(err)
	want := &cnichain.LowerLink{Index: function.Attrs().Index, PF: device.PF}
	if diff := cmp.Diff(want, now.StandsOn); diff != "" {
		t.Errorf("lower devices of upper0 (-want +got):\n%s", diff)
	}
}

// A virtual function that returns from a destroyed namespace has a different name, address and MTU, and its PF still
// has the settings applied by the pod's plugins.
func TestVFIsRestored(t *testing.T) {
	v := newVFBench(t)
	pod := cnitest.NewPod(t, "vf")
	namespace, err := netns.GetFromPath(pod)
	v.must(err)
	link, err := netlink.LinkByName(v.baseline.IfName)
	v.must(err)
	v.must(netlink.LinkSetNsFd(link, int(namespace)))
	handle, err := netlink.NewHandleAt(namespace, unix.NETLINK_ROUTE)
	v.must(err)
	v.spoil(handle, v.baseline.IfName)
	handle.Close()
	v.must(namespace.Close())
	cnitest.RemovePod(pod)
	v.awaitReturn()
}

// Like the previous test, but with a chain and a running pod: the application has renamed the link and created another
// link under the old name, so the plugin does not find the device by that name.
func TestVFComesHomeFromAChain(t *testing.T) {
	for _, mover := range movers() {
		t.Run(mover, func(t *testing.T) { comesHomeFromAChain(newVFBench(t), mover) })
	}
}

func comesHomeFromAChain(v *vfBench, mover string) {
	t := v.T
	b := &bench{testHost: v.testHost, dir: t.TempDir(), pod: cnitest.NewPod(t, "chain"), pin: "/run/netns/dra-vf"}
	b.restart()
	t.Cleanup(func() { _ = b.db.Close() })
	b.executor.Dirs = []string{cnitest.RealPlugins(t), ownPlugins(t)}
	topology := &v1alpha1.NetworkTopology{}
	topology.Name = "t"
	v.must(yaml.UnmarshalStrict([]byte(`[{name: vf, type: `+mover+`, selector: {cel: "true"}}]`), &topology.Spec.Steps))
	plugins, err := b.executor.Probe(context.Background(), cnichain.Types(topology))
	v.must(err)
	plan, problems := cnichain.Compile(topology, cnichain.Binding{
		Claim: cnichain.Claim{Namespace: "ns", Name: "c", UID: "c"}, Schemas: cnichain.DefaultSchemas(),
		Plugins: plugins,
		Devices: []cnichain.RootDevice{{Step: "vf", Device: v.baseline}},
	})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	made := executor.NewAttachment("vf", executor.Pod{Namespace: "ns", Name: "p"}, []cnichain.Plan{*plan})
	made.Pin = b.pin
	v.must(b.add(made))
	v.must(inPod(b.pod, func(handle *netlink.Handle) error {
		v.spoil(handle, "net1")
		return handle.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "net1"}})
	}))
	v.must(b.executor.Del(context.Background(), made))
	v.must(inPod(b.pod, func(handle *netlink.Handle) error { _, err := handle.LinkByName("net1"); return err }))
	v.awaitReturn()
}

// After a reboot, a virtual function is identified by its PCI address but keeps the administrator's new settings.
func TestVFAfterAReboot(t *testing.T) {
	v := newVFBench(t)
	later := host.Linux{BootID: "of the next boot"}
	link, err := netlink.LinkByName(v.baseline.IfName)
	v.must(err)
	v.must(netlink.LinkSetVfVlanQos(v.pf, v.index, 6, 0))
	v.must(netlink.LinkSetMTU(link, 1400))
	t.Cleanup(v.awaitReturn)
	now, err := later.Snapshot(v.baseline)
	v.must(err)
	if now.MTU != 1400 || now.VF == nil || now.VF.VLAN != 6 || now.BootID != "of the next boot" ||
		now.Port != v.baseline.Port {
		t.Errorf("wrong new baseline: %+v, %+v", now.Baseline, now.VF)
	}
	v.must(later.Restore(v.baseline))
	v.must(later.FreeAddress(v.baseline))
	if onHost, err := later.OnHost(v.baseline); !onHost || err != nil {
		t.Errorf("the function is not on the host: OnHost returned %v, %v", onHost, err)
	}
	after, err := later.Snapshot(v.baseline)
	v.must(err)
	if diff := cmp.Diff(now, after); diff != "" {
		t.Errorf("the function was changed (-before +now):\n%s", diff)
	}
}
