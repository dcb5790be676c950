package netdev

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/vishvananda/netlink"

	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
)

const up0 = `"device": "up0"`

// In every CNI version, a link is moved into the pod and returned to the host with the same properties, including its
// index, and no record is left.
func TestMovesAndReturns(t *testing.T) {
	b := onMachine(t)
	if b == nil {
		return
	}
	b.veth("up0", 4001)
	before := b.links(b.host)
	for i, version := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0", "0.3.1", "1.1.0"} {
		b.inProcess = i > 3 // the driver does not run CHECK in process, so CHECK runs as a separate process
		o := order{ifName: "net1", netns: b.pod, version: version, config: up0}
		o.command = "ADD"
		added, err := b.call(o)
		b.must(err)
		b.expectLinks(b.host)
		b.expectLinks(b.inPod, `net1 4001 02:00:00:0f:a1:01 mtu=1450 up=true "rack 7" [up0-alternative]`)
		result := resultOf(t, added)
		if link := result.Interfaces[0]; result.CNIVersion != version || link.Name != "net1" || link.Sandbox != b.pod ||
			link.Mac != "02:00:00:0f:a1:01" {
			t.Errorf("%s: ADD returned an unexpected result: %s", version, added)
		}
		o.previous = added
		if version != "0.3.1" {
			o.command, b.inProcess = "CHECK", false
			_, err = b.call(o)
			b.must(err)
			b.inProcess = i > 3
		}
		o.command = "DEL"
		for range 2 {
			_, err := b.call(o)
			b.must(err)
		}
		b.clean(before)
	}
	b.inProcess = false
	b.must(func() error { _, err := b.call(order{command: "STATUS", config: up0}); return err }())
}

// A link that was down on the host is down again when it returns.
func TestReturnsDown(t *testing.T) {
	b := onMachine(t)
	if b == nil {
		return
	}
	b.veth("up0", 4001)
	link, err := b.host.links.LinkByName("up0")
	b.must(err)
	b.must(b.host.links.LinkSetDown(link))
	before := b.links(b.host)
	b.add("net1", up0)
	b.del("net1", up0)
	b.clean(before)
}

// If the requested name is taken, neither the link that has the name nor the device is changed.
func TestTakenNames(t *testing.T) {
	b := onMachine(t)
	if b == nil {
		return
	}
	b.veth("up0", 4001)
	before := b.links(b.host)
	add := order{command: "ADD", ifName: "net1", netns: b.pod, config: up0}

	b.bridge(b.inPod, "net1")
	b.fails(add, `cannot move link \"up0\" to the pod: the name \"net1\" is taken by link`,
		"file exists; choose another ifName")
	b.delete(b.inPod, "net1")
	b.clean(before)

	ownOrder := add
	ownOrder.ifName = "up0-alternative"
	b.fails(ownOrder, "it is an alternative name of the link")
	b.clean(before)

	// The device's own name and index may be taken in the pod.
	b.must(b.inPod.links.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "up0", Index: 4001},
		PeerName: "ownp"}))
	b.add("net1", up0)
	if moved, err := b.inPod.links.LinkByName("net1"); err != nil || moved.Attrs().Alias != "rack 7" {
		t.Errorf("net1 is %+v, error = %v; want the moved device", moved, err)
	}
	b.del("net1", up0)
	b.delete(b.inPod, "up0")
	b.clean(before)

	b.add("net1", up0)
	inPod := b.links(b.inPod)
	b.bridge(b.host, "up0")
	onHost := b.links(b.host)
	b.fails(order{command: "DEL", ifName: "net1", netns: b.pod, config: up0},
		`to the host: the name \"up0\" is taken by link \"up0\": file exists; rename that link`)
	b.expectLinks(b.inPod, inPod...)
	b.expectLinks(b.host, onHost...)
	b.delete(b.host, "up0")
	b.del("net1", up0)
	b.clean(before)
}

// Multus sets deviceID and pciBusID to the allocated device, even if that device is a link that is not on a bus. The
// allocated device overrides the one in the network's configuration.
func TestDeviceOfMultus(t *testing.T) {
	b := onMachine(t)
	if b == nil {
		return
	}
	b.veth("up0", 4001)
	before := b.links(b.host)
	const allocated = `"device": "other", "deviceID": "up0", "pciBusID": "up0"`
	b.add("net1", allocated)
	b.del("net1", allocated)
	b.clean(before)
	b.fails(order{command: "ADD", ifName: "net1", netns: b.pod,
		config: `"device": "up0", "deviceID": "0000:ff:1f.7", "pciBusID": "0000:ff:1f.7"`}, "0000:ff:1f.7")
	b.clean(before)
}

// Two links swap names when they are moved: each link's name in the pod is the other link's name on the host.
func TestNamesAreSwapped(t *testing.T) {
	b := onMachine(t)
	if b == nil {
		return
	}
	b.veth("net1", 4001)
	b.veth("net2", 4002)
	before := b.links(b.host)
	both := func(command string) {
		var running sync.WaitGroup
		for device, ifName := range map[string]string{"net1": "net2", "net2": "net1"} {
			running.Go(func() {
				if _, err := b.call(order{command: command, ifName: ifName, netns: b.pod,
					config: fmt.Sprintf(`"device": %q`, device)}); err != nil {
					t.Error(err)
				}
			})
		}
		running.Wait()
	}
	for range 10 {
		both("ADD")
		b.expectLinks(b.inPod, `net1 4002 02:00:00:0f:a2:01 mtu=1450 up=true "rack 7" [net2-alternative]`,
			`net2 4001 02:00:00:0f:a1:01 mtu=1450 up=true "rack 7" [net1-alternative]`)
		both("DEL")
		b.clean(before)
	}
}

// If two pods request the same link, one pod gets it, and the other pod's failure does not take the link from the first
// pod.
func TestOneGetsTheLink(t *testing.T) {
	b := onMachine(t)
	if b == nil {
		return
	}
	b.veth("up0", 4001)
	before := b.links(b.host)
	for range 10 {
		var running sync.WaitGroup
		var mu sync.Mutex
		got := map[string]bool{}
		for _, ifName := range []string{"net1", "net2"} {
			running.Go(func() {
				_, err := b.call(order{command: "ADD", ifName: ifName, netns: b.pod, config: up0})
				mu.Lock()
				defer mu.Unlock()
				got[ifName] = err == nil
			})
		}
		running.Wait()
		if got["net1"] == got["net2"] || len(b.links(b.inPod)) != 1 {
			t.Errorf("ADD succeeded for %v, want exactly one; the pod has links %q", got, b.links(b.inPod))
		}
		b.del("net1", up0)
		b.del("net2", up0)
		b.clean(before)
	}
}

// The link that was moved returns to the host, even if an application has renamed it or given its name to another link.
func TestRenamedInThePod(t *testing.T) {
	b := onMachine(t)
	if b == nil {
		return
	}
	b.veth("up0", 4001)
	before := b.links(b.host)
	result := b.add("net1", up0)
	b.rename(b.inPod, "net1", "mine0")
	b.bridge(b.inPod, "net1")
	b.fails(order{command: "CHECK", ifName: "net1", netns: b.pod, config: up0, previous: result},
		"has the hardware address")
	b.del("net1", up0)
	b.expectLinks(b.host, before...)
	if links := b.links(b.inPod); len(links) != 1 || !strings.HasPrefix(links[0], "net1 ") {
		t.Errorf("the pod has links %q, want only net1", links)
	}
	b.del("net1", up0)
	if links := b.links(b.inPod); len(links) != 1 {
		t.Errorf("after a second DEL the pod has links %q, want one", links)
	}
}

// An application that hides or deletes the device can create another link with the same name, address and index. That
// link stays in the pod, and CHECK reports it.
func TestImpostors(t *testing.T) {
	for name, impostor := range map[string]func(netlink.LinkAttrs) netlink.Link{
		"veth": func(attrs netlink.LinkAttrs) netlink.Link {
			return &netlink.Veth{LinkAttrs: attrs, PeerName: "ownp"}
		},
		"bridge": func(attrs netlink.LinkAttrs) netlink.Link { return &netlink.Bridge{LinkAttrs: attrs} },
	} {
		t.Run(name, func(t *testing.T) {
			b := onMachine(t)
			if b == nil {
				return
			}
			b.veth("up0", 4001)
			result := b.add("net1", up0)
			device, err := b.inPod.links.LinkByName("net1")
			b.must(err)
			b.delete(b.inPod, "net1")
			b.must(b.inPod.links.LinkAdd(impostor(netlink.LinkAttrs{Name: "net1", Index: 4001,
				HardwareAddr: device.Attrs().HardwareAddr})))
			b.fails(order{command: "CHECK", ifName: "net1", netns: b.pod, config: up0, previous: result},
				"is not the device")
			inPod := b.links(b.inPod)
			b.del("net1", up0)
			b.expectLinks(b.inPod, inPod...)
			b.expectLinks(b.host)
			b.delete(b.inPod, "net1")
			b.clean(nil)
		})
	}
}

// A pod may create namespaces that contain links with arbitrary indexes. A lower link is therefore identified by both
// its index and its namespace.
func TestImpostorsOnHiddenLinks(t *testing.T) {
	b := onMachine(t)
	if b == nil {
		return
	}
	hidden := newBench(t, cnitest.NewPod(t, "hidden")).inPod
	parent := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "low0", Index: 4100}, PeerName: "low0p"}
	b.must(b.host.links.LinkAdd(parent))
	t.Cleanup(func() { _ = b.host.links.LinkDel(parent) })
	macvlan := func(space *namespace, name string, index int) {
		b.must(space.links.LinkAdd(&netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: name, Index: index,
			ParentIndex: 4100}, Mode: netlink.MACVLAN_MODE_BRIDGE}))
	}
	macvlan(b.host, "up0", 4001)
	b.add("net1", up0)
	b.delete(b.inPod, "net1")
	b.must(hidden.links.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "low0", Index: 4100},
		PeerName: "low0p"}))
	macvlan(hidden, "net1", 4001)
	impostor, err := hidden.links.LinkByName("net1")
	b.must(err)
	b.must(hidden.links.LinkSetNsFd(impostor, int(b.inPod.handle)))
	b.del("net1", up0)
	if link, err := b.host.owner("up0"); err != nil || link != nil {
		t.Errorf("the host has %+v, error = %v; want no up0", link, err)
	}
	b.delete(b.inPod, "net1")

	// The lower link may have been moved to another pod in the meantime; our link still returns.
	macvlan(b.host, "up0", 4001)
	b.add("net1", up0)
	low, err := b.host.links.LinkByName("low0")
	b.must(err)
	b.delete(hidden, "low0")
	b.must(hidden.links.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "other", Index: 4100}}))
	b.must(b.host.links.LinkSetNsFd(low, int(hidden.handle)))
	b.del("net1", up0)
	if link, err := b.host.owner("up0"); err != nil || link == nil {
		t.Errorf("the host did not get up0 back: %v", err)
	}
	b.expectLinks(b.inPod)
}

// rangesIPAM is a plugin that assigns each interface its own network, and records the input that it receives for GC.
// The reference plugins do not implement GC.
const rangesIPAM = `#!/bin/sh
case $CNI_COMMAND in
ADD) echo "{\"cniVersion\": \"1.1.0\", \"ips\": [{\"address\": \"10.${CNI_IFNAME#net}.0.2/24\"}]}" ;;
GC) cat > "$(dirname "$0")/told" ;;
esac
`

// GC keeps the addresses of a link that cannot be returned, and releases other addresses. If a record is unreadable, it
// is not known which addresses links have.
func TestGarbageThatCannotReturn(t *testing.T) {
	b := onMachine(t)
	if b == nil {
		return
	}
	dir := t.TempDir()
	b.must(os.WriteFile(filepath.Join(dir, "ranges"), []byte(rangesIPAM), 0o700)) //nolint:gosec // a program
	b.veth("up0", 4001)
	b.veth("up1", 4002)
	for ifName, device := range map[string]string{"net1": "up0", "net2": "up1"} {
		_, err := b.call(order{command: "ADD", ifName: ifName, netns: b.pod, plugins: dir,
			config: `"device": "` + device + `", "ipam": {"type": "ranges"}`})
		b.must(err)
	}
	gc := order{command: "GC", plugins: dir, config: `"device": "up0", "ipam": {"type": "ranges"}, ` +
		`"cni.dev/valid-attachments": [], "cni.dev/attachments": []`}
	told := func() string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(dir, "told"))
		b.must(err)
		var config map[string]json.RawMessage
		b.must(json.Unmarshal(data, &config))
		return string(config["cni.dev/valid-attachments"]) + string(config["cni.dev/attachments"])
	}
	b.bridge(b.host, "up0")
	b.fails(gc, "file exists")
	if got := told(); got != strings.Repeat(`[{"containerID":"c1","ifname":"net1"}]`, 2) {
		t.Errorf("the IPAM plugin was given %s, want the attachment twice", got)
	}
	b.delete(b.host, "up0")
	_, err := b.call(gc)
	b.must(err)
	if got := told(); got != "[][]" {
		t.Errorf("the IPAM plugin was given %s, want no attachments", got)
	}
	b.must(os.Remove(filepath.Join(dir, "told")))
	b.must(os.WriteFile(filepath.Join(stateDir, "c9_net1.json"), []byte("{"), 0o600))
	b.fails(gc, "cannot read record")
	if _, err := os.Stat(filepath.Join(dir, "told")); err == nil {
		t.Error("the IPAM plugin was called although a record is unreadable")
	}
	b.must(os.Remove(filepath.Join(stateDir, "c9_net1.json")))
}

// Both ends of a veth pair may be moved to pods, even to the same pod.
func TestBothEndsOfAPair(t *testing.T) {
	b := onMachine(t)
	if b == nil {
		return
	}
	b.veth("up0", 4001)
	const peer = `"device": "up0p"`
	result := b.add("net1", up0)
	b.add("net2", peer)
	_, err := b.call(order{command: "CHECK", ifName: "net1", netns: b.pod, config: up0, previous: result})
	b.must(err)
	b.del("net1", up0)
	b.del("net2", peer)
	for _, name := range []string{"up0", "up0p"} {
		if link, err := b.host.owner(name); err != nil || link == nil {
			t.Errorf("the host did not get %s back: %v", name, err)
		}
	}
	b.expectLinks(b.inPod)
}

// In the pod, an application may give the device an alternative name that is the device's own name on the host or the
// name of another link there.
func TestAlternativeNamesOfThePod(t *testing.T) {
	b := onMachine(t)
	if b == nil {
		return
	}
	b.veth("up0", 4001)
	b.veth("up1", 4002)
	before := b.links(b.host)
	b.add("net1", up0)
	device, err := b.inPod.links.LinkByName("net1")
	b.must(err)
	for _, name := range []string{"up0", "up1", "mine0"} {
		b.must(b.inPod.links.LinkAddAltName(device, name))
	}
	b.del("net1", up0)
	b.clean(before)
}

// If the record is lost, the link is identified from the result of ADD; other links are not changed.
func TestRecordIsLost(t *testing.T) {
	b := onMachine(t)
	if b == nil {
		return
	}
	b.veth("up0", 4001)
	before := b.links(b.host)
	result := b.add("net1", up0)
	b.must(os.RemoveAll(stateDir))
	del := order{command: "DEL", ifName: "net1", netns: b.pod, config: up0, previous: result}
	b.rename(b.inPod, "net1", "mine0")
	b.bridge(b.inPod, "net1")
	_, err := b.call(del)
	b.must(err)
	if links := b.links(b.inPod); len(links) != 2 {
		t.Errorf("the pod has links %q, want two", links)
	}
	b.delete(b.inPod, "net1")
	b.rename(b.inPod, "mine0", "net1")
	_, err = b.call(del)
	b.must(err)
	b.expectLinks(b.inPod)
	if links := b.links(b.host); len(links) != 1 || !strings.HasPrefix(links[0], "up0 4001 ") ||
		!strings.HasPrefix(before[0], "up0 4001 ") {
		t.Errorf("the host has links %q, want only up0", links)
	}
}

// A repeated ADD starts over, even if the device is different.
func TestAddAgain(t *testing.T) {
	b := onMachine(t)
	if b == nil {
		return
	}
	b.veth("up0", 4001)
	b.veth("up1", 4002)
	before := b.links(b.host)
	b.add("net1", up0)
	b.add("net1", up0)
	b.add("net1", `"device": "up1"`)
	b.expectLinks(b.host, before[0])
	b.del("net1", `"device": "up1"`)
	b.clean(before)
}

// Links that do not belong to a valid attachment return to the host; all other links stay in the pod.
func TestGarbage(t *testing.T) {
	b := onMachine(t)
	if b == nil {
		return
	}
	b.veth("up0", 4001)
	b.veth("up1", 4002)
	before := b.links(b.host)
	b.add("net1", up0)
	b.add("net2", `"device": "up1"`)
	collect := func(valid string) {
		_, err := b.call(order{command: "GC", config: `"cni.dev/valid-attachments": [` + valid + `]`})
		b.must(err)
	}
	collect(`{"containerID": "c1", "ifname": "net1"}, {"containerID": "c1", "ifname": "net2"}`)
	if links := b.links(b.inPod); len(links) != 2 {
		t.Errorf("the pod has links %q, want two", links)
	}
	collect(`{"containerID": "c1", "ifname": "net2"}`)
	b.expectLinks(b.host, before[0])
	collect("")
	b.clean(before)
}

const addresses = up0 +
	`, "ipam": {"type": "host-local", "dataDir": "/run/leases", "ranges": [[{"subnet": "10.1.0.0/24"}]], ` +
	`"routes": [{"dst": "10.9.0.0/16"}]}`

// Addresses are set in the pod. They are released together with the link, and also if the namespace no longer exists or
// if they cannot be set.
func TestAddresses(t *testing.T) {
	b := onMachine(t)
	if b == nil {
		return
	}
	cnitest.RealPlugins(t)
	b.veth("up0", 4001)
	before := b.links(b.host)
	leases := func(want int) {
		t.Helper()
		if files, err := filepath.Glob("/run/leases/net/10.*"); err != nil || len(files) != want {
			t.Errorf("got leases %q, error = %v; want %d leases", files, err, want)
		}
	}
	result := b.add("net1", addresses)
	b.expectLinks(b.inPod, `net1 4001 02:00:00:0f:a1:01 mtu=1450 up=true "rack 7" [up0-alternative] 10.1.0.2/24`)
	leases(1)
	o := order{command: "CHECK", ifName: "net1", netns: b.pod, config: addresses, previous: result}
	_, err := b.call(o)
	b.must(err)
	link, err := b.inPod.links.LinkByName("net1")
	b.must(err)
	b.delAddresses(link)
	b.fails(o, "10.1.0.2")
	b.del("net1", addresses)
	leases(0)
	b.clean(before)

	// While the link is in the pod, its address is still in use in the namespace.
	b.add("net1", addresses)
	b.bridge(b.host, "up0")
	b.fails(order{command: "DEL", ifName: "net1", netns: b.pod, config: addresses}, "file exists")
	leases(1)
	b.delete(b.host, "up0")
	b.del("net1", addresses)
	leases(0)
	b.clean(before)

	b.add("net1", addresses)
	_, err = b.call(order{command: "DEL", ifName: "net1", config: addresses}) // the namespace no longer exists
	b.must(err)
	leases(0)
	b.clean(before)

	b.fails(order{command: "ADD", ifName: "net1", netns: b.pod,
		config: strings.Replace(addresses, "10.1.0.0/24", "10.1.0.0/32", 1)}, "too small")
	leases(0)
	b.clean(before)
}

func (b *bench) delAddresses(link netlink.Link) {
	b.Helper()
	addresses, err := b.inPod.links.AddrList(link, netlink.FAMILY_V4)
	b.must(err)
	for i := range addresses {
		b.must(b.inPod.links.AddrDel(link, &addresses[i]))
	}
}

func TestConfigurationsThatAreRefused(t *testing.T) {
	b := onMachine(t)
	if b == nil {
		return
	}
	for config, text := range map[string]string{
		`"x": 1`:                           "the configuration names no device",
		`"device": "nosuch"`:               `cannot find link \"nosuch\" on the host`,
		`"device": 7`:                      "cannot read the configuration",
		`"pciBusID": "0000:ff:1f.7"`:       `cannot find PCI function \"0000:ff:1f.7\"`,
		`"pciBusID": "../../../class/net"`: "is not the name of a device",
		`"runtimeConfig": {"deviceID": "0000:ff:1f.7"}`: "runtimeConfig.deviceID",
		`"device": "lo"`: `cannot move link \"lo\"`,
		`"device": "up0", "prevResult": {"interfaces": 7}`: "prevResult",
	} {
		b.fails(order{command: "ADD", ifName: "net1", netns: b.pod, config: config}, text)
	}
	b.fails(order{command: "ADD", ifName: "net1", netns: "/run/netns/none", config: `"device": "lo"`},
		"cannot open network namespace")
	b.clean(nil)
}

// A device's link is looked up below the device in sysfs; if there are several links, the configuration must name one.
func TestLinkOfADevice(t *testing.T) {
	dir := t.TempDir()
	make := func(path, index string) {
		if err := os.MkdirAll(filepath.Join(dir, path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path, "ifindex"), []byte(index+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(name string, want int, text string) {
		t.Helper()
		index, err := linkIndexBelow(dir, name)
		if index != want || (err == nil) != (text == "") || err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("%q: got link %d, error = %v; want %d, %q", name, index, err, want, text)
		}
	}
	expect("", 0, "has no link on the host")
	make("virtio3/net/eth0", "7")
	expect("", 7, "")
	expect("eth0", 7, "")
	expect("eth1", 0, "only eth0")
	make("net/rep0", "8")
	expect("", 0, "several links: rep0, eth0; select one with device")
	expect("rep0", 8, "")
}

// Every command that the plugin advertises is implemented.
func TestCommands(t *testing.T) {
	if f := functions(); f.Add == nil || f.Del == nil || f.Check == nil || f.Status == nil || f.GC == nil {
		t.Errorf("a command is not implemented: %+v", f)
	}
	if err := check(&skel.CmdArgs{StdinData: []byte(`{"cniVersion": "1.0.0", "device": "x"}`),
		IfName: "net1"}); err == nil ||
		!strings.Contains(err.Error(), "prevResult does not have it") {
		t.Errorf("CHECK without prevResult: error = %v, want one that mentions prevResult", err)
	}
}

// killsVariable is the environment variable that sets how many times TestKilled kills the plugin.
const killsVariable = "NETDEV_KILLS"

// The plugin is killed at random points during ADD and DEL. Even though a veth would be destroyed along with its
// namespace, it is never lost, and DEL returns it to the host with the same properties.
func TestKilled(t *testing.T) {
	if b := onMachine(t); b != nil {
		b.killed(t)
	}
}

// TestDriverKilled is like TestKilled, but with the plugin running in the driver's process.
func TestDriverKilled(t *testing.T) {
	if b := onMachine(t); b != nil {
		b.inProcess = true
		b.killed(t)
	}
}

func (b *bench) killed(t *testing.T) {
	t.Helper()
	kills := 60
	if testing.Short() { // "make test-kernel" kills the plugin more often
		kills = 8
	}
	if number := os.Getenv(killsVariable); number != "" {
		var err error
		kills, err = strconv.Atoi(number)
		b.must(err)
	}
	b.veth("up0", 4001)
	before := b.links(b.host)
	times := map[string]time.Duration{}
	call := func(command string, limit time.Duration) bool {
		cmd := b.command(order{command: command, ifName: "net1", netns: b.pod, config: up0})
		b.must(cmd.Start())
		timer := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
		err := cmd.Wait()
		timer.Stop()
		if exit, ok := err.(*exec.ExitError); err != nil && (!ok || exit.ExitCode() >= 0) { //nolint:errorlint // Wait's
			t.Fatalf("%s failed without being killed: %v", command, err)
		}
		return err != nil
	}
	for range 5 {
		for _, command := range []string{"ADD", "DEL"} {
			start := time.Now()
			call(command, time.Minute)
			times[command] = max(times[command], time.Since(start))
		}
	}
	seen := map[string]int{}
	for i := range kills {
		command := []string{"ADD", "DEL"}[i%2]
		if command == "DEL" {
			b.add("net1", up0)
		}
		killed := call(command, time.Duration(rand.Int64N(int64(times[command])))) //nolint:gosec // any moment
		seen[fmt.Sprintf("%s killed=%v, then in pod=%v", command, killed, len(b.links(b.inPod)) == 1)]++
		if len(b.links(b.inPod))+len(b.links(b.host)) != 1 {
			t.Fatalf("the link was lost after %s", command)
		}
		b.del("net1", up0)
		b.clean(before)
	}
	t.Logf("%d kills; ADD took at most %s, DEL at most %s; outcomes: %v", kills, times["ADD"], times["DEL"], seen)
}
