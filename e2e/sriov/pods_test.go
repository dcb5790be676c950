package sriov

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	testbench "github.com/dra-networking/dra-network-driver/e2e/internal/bench"
)

// pf2 is a physical function without virtual functions, for plugins that share a NIC.
const pf2 = "0000:42:00.0"

// policies contains the policies from the published design (sections 5 and 6.2) for three NICs: the first has virtual
// functions, and can also be allocated as a whole or shared through macvlan; the second has virtual functions; the
// third can be shared through either macvlan or ipvlan. A bridge is also offered, but virtual functions that are ports
// on a bridge are not.
const policies = `
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: pf0-vfs}
spec:
  priority: 200
  selector: {cel: 'device.attributes["dra.networking"].type == "vf" && device.attributes["dra.networking"].pfName == "PF0"'}
  action: expose
  exposure:
    allowMultipleAllocations: false
    supportedCNIPlugins: [{name: sriov, exclusive: true}, {name: host-device, exclusive: true}]
---
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: pf1-vfs}
spec:
  priority: 200
  selector: {cel: 'device.attributes["dra.networking"].type == "vf" && device.attributes["dra.networking"].pfName == "PF1"'}
  action: expose
  exposure:
    allowMultipleAllocations: false
    supportedCNIPlugins: [{name: sriov, exclusive: true}, {name: host-device, exclusive: true}, {name: ovn-k8s-cni-overlay, exclusive: true}]
---
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: pf0-macvlan}
spec:
  priority: 200
  selector: {cel: 'device.attributes["dra.networking"].type == "pf" && device.attributes["dra.networking"].ifName == "PF0"'}
  action: expose
  exposure:
    deviceNameSuffix: "-macvlan"
    allowMultipleAllocations: true
    capacity: {macvlans: {value: "64", requestPolicy: {default: "1", validRange: {min: "1", max: "4", step: "1"}}}}
    supportedCNIPlugins: [{name: macvlan, exclusive: false, consumePerAllocation: {macvlans: 1}}]
---
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: pf0-passthrough}
spec:
  priority: 200
  selector: {cel: 'device.attributes["dra.networking"].type == "pf" && device.attributes["dra.networking"].ifName == "PF0"'}
  action: expose
  exposure:
    deviceNameSuffix: "-passthrough"
    allowMultipleAllocations: false
    supportedCNIPlugins: [{name: host-device, exclusive: true}]
---
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: pf2-macvlan}
spec:
  priority: 200
  selector: {cel: 'device.attributes["dra.networking"].type == "pf" && device.attributes["dra.networking"].ifName == "PF2"'}
  action: expose
  exposure:
    deviceNameSuffix: "-macvlan"
    exclusionGroup: rx-handler
    allowMultipleAllocations: true
    capacity: {macvlans: {value: "64", requestPolicy: {default: "1", validRange: {min: "1", max: "4", step: "1"}}}}
    supportedCNIPlugins: [{name: macvlan, exclusive: false, consumePerAllocation: {macvlans: 1}}]
---
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: pf2-ipvlan}
spec:
  priority: 200
  selector: {cel: 'device.attributes["dra.networking"].type == "pf" && device.attributes["dra.networking"].ifName == "PF2"'}
  action: expose
  exposure:
    deviceNameSuffix: "-ipvlan"
    exclusionGroup: rx-handler
    allowMultipleAllocations: true
    capacity: {ipvlans: {value: "64", requestPolicy: {default: "1", validRange: {min: "1", max: "4", step: "1"}}}}
    supportedCNIPlugins: [{name: ipvlan, exclusive: false, consumePerAllocation: {ipvlans: 1}}]
---
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: exclude-bridge-slave-vfs}
spec:
  priority: 900
  selector: {cel: 'device.attributes["dra.networking"].type == "vf" && device.attributes["dra.networking"].masterBridge != ""'}
  action: exclude
---
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: bridge-sriov-data}
spec:
  priority: 200
  selector: {cel: 'device.attributes["dra.networking"].type == "bridge" && device.attributes["dra.networking"].ifName == "br-sriov-data"'}
  action: expose
  exposure:
    allowMultipleAllocations: true
    capacity: {ports: {value: "64", requestPolicy: {default: "1", validRange: {min: "1", max: "4", step: "1"}}}}
    supportedCNIPlugins: [{name: bridge, exclusive: false, consumePerAllocation: {ports: 1}}]
`

// TestClusterPods creates the pods from the examples in the published design through the API.
func TestClusterPods(t *testing.T) {
	c := newCluster(t, 4)
	c.must(netlink.LinkSetUp(c.LinkOf(pf2)))
	c.Apply(c.named(policies))
	c.part("slices", (*cluster).publishesFunctions)
	c.part("settings", (*cluster).setsFunctions)
	c.part("bond", (*cluster).bondsFunctions)
	c.part("personas", (*cluster).keepsPersonasApart)
	c.part("passthrough", (*cluster).keepsPassthroughApart)
	c.part("bridge", (*cluster).bridgesFunctions)
	c.part("vfio", (*cluster).givesFunctionsToApplications)
	c.part("kubevirt", (*cluster).isReadByKubeVirt)
	c.part("ovn", (*cluster).acceleratesNetworks)
	c.part("numvfs", (*cluster).followsNumVFs)
}

// named inserts the link names of the NICs into text.
func (c *cluster) named(text string) string {
	c.Helper()
	for i, address := range []string{pf0, pf1, pf2} {
		text = strings.ReplaceAll(text, fmt.Sprintf("PF%d", i), c.LinkOf(address).Attrs().Name)
	}
	return text
}

// publishedAs describes the devices published for the NICs, without properties that differ between boots.
func (c *cluster) publishedAs(ctx context.Context) (string, error) {
	published, err := c.slices(ctx)
	if err != nil {
		return "", err
	}
	var lines []string
	for i := range published {
		spec := &published[i].Spec
		for _, set := range spec.SharedCounters {
			line := spec.Pool.Name + " has"
			for _, name := range slices.Sorted(maps.Keys(set.Counters)) {
				line += fmt.Sprintf(" %s %s", name, quantity(set.Counters[name].Value))
			}
			lines = append(lines, line)
		}
		for _, device := range spec.Devices {
			line := fmt.Sprintf("%s: %s", spec.Pool.Name, device.Name)
			for _, consumed := range device.ConsumesCounters {
				for _, name := range slices.Sorted(maps.Keys(consumed.Counters)) {
					line += fmt.Sprintf(" %s %s", name, quantity(consumed.Counters[name].Value))
				}
			}
			for _, name := range slices.Sorted(maps.Keys(device.Capacity)) {
				line += fmt.Sprintf(" (%s %s)", name, quantity(device.Capacity[name].Value))
			}
			for _, plugin := range []string{"host_device", "ipvlan", "macvlan", "sriov", "bridge"} {
				if value := device.Attributes[resourceapi.QualifiedName("cni.dra.networking/"+
					plugin)].BoolValue; value != nil && *value {
					line += " " + plugin
				}
			}
			lines = append(lines, line)
		}
	}
	text := strings.Join(lines, "\n")
	for i, address := range []string{pf0, pf1, pf2} {
		text = strings.ReplaceAll(text, c.LinkOf(address).Attrs().Name, fmt.Sprintf("PF%d", i))
	}
	return sorted(text), nil
}

func sorted(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func quantity(q resource.Quantity) string { return q.String() }

func (c *cluster) published(want string) {
	c.Helper()
	var last string
	c.Until("slices that are as wanted", func(ctx context.Context) error {
		text, err := c.publishedAs(ctx)
		last = cmp.Diff(sorted(want), text)
		if err == nil && last != "" {
			err = errors.New(last)
		}
		return err
	})
}

// functionsOf returns the expected entries for a NIC's virtual functions. Functions on the first NIC, which is also
// offered as a whole, consume counters.
func functionsOf(nic, count, bandwidth int) string {
	text := ""
	for i := range count {
		consumed := ""
		if nic == 0 {
			consumed = fmt.Sprintf(" bandwidth %d exclusion-slots 1", bandwidth)
		}
		text += fmt.Sprintf("e2e-node/PF%[1]d: PF%[1]dv%[2]d%[3]s (dra.networking/bandwidth %[4]d) host_device sriov\n",
			nic, i, consumed, bandwidth)
	}
	return text
}

const publishedOfThird = `
e2e-node/PF2 has ipvlans-capacity 64 macvlans-capacity 64
e2e-node/PF2: PF2-ipvlan ipvlans-capacity 64 macvlans-capacity 64 (dra.networking/ipvlans 64) ipvlan
e2e-node/PF2: PF2-macvlan ipvlans-capacity 64 macvlans-capacity 64 (dra.networking/macvlans 64) macvlan
`

func publishedOfAll(second, bandwidth int) string {
	text := `
e2e-node/PF0 has bandwidth 1k exclusion-slots 5 macvlans-capacity 64
e2e-node/PF0: PF0-macvlan macvlans-capacity 64 (dra.networking/macvlans 64) macvlan
e2e-node/PF0: PF0-passthrough bandwidth 1k exclusion-slots 5 macvlans-capacity 64 host_device
` + functionsOf(0, 4, 200) + functionsOf(1, second, bandwidth)
	return text + strings.TrimPrefix(publishedOfThird, "\n")
}

func (c *cluster) publishesFunctions() { c.published(publishedOfAll(4, 200)) }

// Examples 1 and 2: sriov attaches one virtual function with all settings, which are visible on the NIC and are reset
// afterwards, and host-device attaches another virtual function.
func (c *cluster) setsFunctions() {
	c.topology("tagged", c.named(`
- name: nic
  type: sriov
  selector: {cel: 'device.attributes["dra.networking"].pfName == "PF0"'}
  config: {vlan: 100, vlanQoS: 3, trust: "on", spoofchk: "off", max_tx_rate: 200, ipam: {type: host-local, subnet: 10.9.0.0/24}}`), "nic")
	c.topology("moved", c.named(`
- name: nic
  type: host-device
  selector: {cel: 'device.attributes["dra.networking"].type == "vf" && device.attributes["dra.networking"].pfName == "PF1"'}
  config: {ipam: {type: host-local, subnet: 10.8.0.0/24}}`), "nic")
	c.create("tagged", "a", "b")
	c.create("moved", "m")
	c.Ready("a", "b", "m")
	for _, name := range []string{"a", "b"} {
		if have, want := c.settings(pf0, c.index(name, 0)),
			"vlan 100 qos 3 spoofchk false trust true rate 200"; have != want {
			c.Errorf("settings of the function of pod %s = %q, want %q", name, have, want)
		}
	}
	if have, want := c.settings(pf1, c.index("m", 0)), "vlan 0 qos 0 spoofchk true trust false rate 0"; have != want {
		c.Errorf("settings of the function of pod m = %q, want %q", have, want)
	}
	a, b := c.inside("a"), c.inside("b")
	a.Reaches(b, ipv4(b, "net1"))
	if diff := cmp.Diff([]string{"net1 device mtu 1500 up true"}, c.inside("m").Links()); diff != "" {
		c.Errorf("links of pod m (-want +have):\n%s", diff)
	}
}

const bondOfCards = `
- name: left
  type: sriov
  selector: {cel: 'device.attributes["dra.networking"].pfName == "PF0"'}
  config: {trust: "on", spoofchk: "off"}
- name: right
  type: sriov
  selector: {cel: 'device.attributes["dra.networking"].pfName == "PF1"'}
  config: {trust: "on", spoofchk: "off"}
- name: both
  type: bond
  dependOn: [left, right]
  ifName: bond0
  config:
    linksInContainer: true
    links: [{name: "{{ left.interfaceName }}"}, {name: "{{ right.interfaceName }}"}]
    mode: active-backup
    miimon: "100"
    failOverMac: 1
- {name: red, type: vlan, dependOn: [both], ifName: red, config: {master: "{{ both.interfaceName }}", linkInContainer: true, vlanId: 5, ipam: {type: host-local, subnet: 10.5.0.0/24}}}
- {name: blue, type: vlan, dependOn: [both], ifName: blue, config: {master: "{{ both.interfaceName }}", linkInContainer: true, vlanId: 6, ipam: {type: host-local, subnet: 10.6.0.0/24}}}
- {name: tune, type: tuning, dependOn: [red], config: {mtu: 1400}}
`

// This is the main use case in the design: virtual functions on two NICs are bonded, with VLANs on top. Two such pods
// can still communicate when one NIC loses its link.
func (c *cluster) bondsFunctions() {
	c.topology("bonded", c.named(bondOfCards), "left", "right")
	c.create("bonded", "one", "two")
	c.Ready("one", "two")
	c.attached("one")
	pods := []*pod{c.inside("one"), c.inside("two")}
	want := []string{
		"blue vlan mtu 1500 up true", "bond0 bond mtu 1500 up true", "net1 device mtu 1500 up true",
		"net2 device mtu 1500 up true", "red vlan mtu 1400 up true",
	}
	for _, p := range pods {
		if diff := cmp.Diff(want, p.Links()); diff != "" {
			c.Errorf("links of %s (-want +have):\n%s", p.Path, diff)
		}
	}
	talk := func(when string) {
		c.Helper()
		c.Logf("%s: red after %s, blue after %s", when, pods[0].Reaches(pods[1], ipv4(pods[1], "red")),
			pods[0].Reaches(pods[1], ipv4(pods[1], "blue")))
	}
	talk("both NICs")
	for _, lost := range []string{pf0, pf1} {
		c.must(netlink.LinkSetDown(c.LinkOf(lost)))
		talk("without " + lost)
		c.must(netlink.LinkSetUp(c.LinkOf(lost)))
		talk("with both again")
	}
}

// Example 4: macvlan and ipvlan cannot share a link. The first pod gets the link, and the second pod waits until the
// first pod has terminated.
func (c *cluster) keepsPersonasApart() {
	for _, kind := range []string{"macvlan", "ipvlan"} {
		c.topology(kind, c.named(fmt.Sprintf(`
- name: nic
  type: %s
  selector: {cel: 'device.attributes["dra.networking"].ifName == "PF2"'}
  config: {ipam: {type: host-local, subnet: 10.7.0.0/24}}`, kind)), "nic")
	}
	c.create("macvlan", "mac1", "mac2")
	c.Ready("mac1", "mac2")
	c.create("ipvlan", "ip")
	c.Waits("ip")
	first, two := c.inside("mac1"), c.inside("mac2")
	first.Reaches(two, ipv4(two, "net1"))
	c.Remove("mac1")
	c.Gone("mac1")
	c.Waits("ip")
	c.Remove("mac2")
	c.Ready("ip")
	c.create("macvlan", "late")
	c.Waits("late")
	if diff := cmp.Diff([]string{"net1 ipvlan mtu 1500 up true"}, c.inside("ip").Links()); diff != "" {
		c.Errorf("links (-want +have):\n%s", diff)
	}
}

// Example 6: a pod is allocated a NIC as a whole only while no other pod has a virtual function or a macvlan interface
// on it. As long as the pod has the NIC, no other pod is allocated either of these.
func (c *cluster) keepsPassthroughApart() {
	for name, step := range map[string]string{"whole": "host-device", "shared": "macvlan", "function": "sriov"} {
		attribute := map[string]string{"whole": "ifName", "shared": "ifName", "function": "pfName"}[name]
		c.topology(name, c.named(fmt.Sprintf(`
- name: nic
  type: %s
  selector: {cel: 'device.attributes["dra.networking"].%s == "PF0"'}
  config: {}`, step, attribute)), "nic")
	}
	before := c.LinkOf(pf0).Attrs().Name
	c.create("function", "function")
	c.create("shared", "shared")
	c.Ready("function", "shared")
	c.create("whole", "whole")
	c.Waits("whole")
	c.Remove("function")
	c.Gone("function")
	c.Waits("whole")
	c.Remove("shared")
	c.Ready("whole")
	if diff := cmp.Diff([]string{"net1 device mtu 1500 up true"}, c.inside("whole").Links()); diff != "" {
		c.Errorf("links (-want +have):\n%s", diff)
	}
	c.create("function", "function")
	c.create("shared", "shared")
	c.Waits("function")
	c.Waits("shared")
	c.Remove("whole")
	c.Ready("function", "shared")
	if now := c.LinkOf(pf0).Attrs().Name; now != before {
		c.Errorf("the NIC was restored as %s, want %s", now, before)
	}
}

// Example 7: a virtual function that is a port on a bridge is not offered, but the bridge is. The NIC cannot be
// allocated as a whole.
func (c *cluster) bridgesFunctions() {
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br-sriov-data"}}
	c.must(netlink.LinkAdd(bridge))
	port := c.LinkOf(c.VF(pf0, 3))
	c.Cleanup(func() { c.must(netlink.LinkDel(bridge)) })
	c.must(errors.Join(netlink.LinkSetUp(bridge), netlink.LinkSetMaster(port, bridge), netlink.LinkSetUp(port)))
	without := strings.Replace(publishedOfAll(4, 200), functionsOf(0, 4, 200), functionsOf(0, 3, 200), 1)
	without = strings.Replace(without, "e2e-node/PF0 has bandwidth 1k exclusion-slots 5",
		"e2e-node/PF0 has bandwidth 1k exclusion-slots 4", 1)
	c.published(without + "e2e-node/br-sriov-data: br-sriov-data (dra.networking/ports 64) bridge\n")
	c.topology("port", `
- name: nic
  type: bridge
  selector: {cel: 'device.attributes["dra.networking"].ifName == "br-sriov-data"'}
  config: {isGateway: false, ipam: {type: host-local, subnet: 10.4.0.0/24}}`, "nic")
	c.create("port", "left", "right")
	c.Ready("left", "right")
	left, right := c.inside("left"), c.inside("right")
	left.Reaches(right, ipv4(right, "net1"))
	c.RemoveAll()
	c.must(netlink.LinkSetNoMaster(port))
	c.must(netlink.LinkSetDown(port))
}

// The administrator changes the number of virtual functions. A function that is in a pod stays published, with a taint,
// until the pod terminates. New functions are published.
func (c *cluster) followsNumVFs() {
	c.topology("kept", c.named(`
- name: nic
  type: sriov
  selector: {cel: 'device.attributes["dra.networking"].pfName == "PF1"'}
  config: {}`), "nic")
	c.create("kept", "user")
	c.Ready("user")
	device := c.devices("user")[0]
	c.must(os.WriteFile(testbench.SysPCI(pf1, "sriov_numvfs"), []byte("0"), 0))
	c.Until("device in use that is published with a taint", func(ctx context.Context) error {
		devices, err := c.Offered(ctx)
		if taint, published := devices[device]; !published || taint != "gone" {
			err = errors.Join(err, fmt.Errorf("the offered devices are %v", devices))
		}
		return err
	})
	c.Remove("user")
	c.Gone("user")
	c.published(publishedOfAll(0, 0))
	c.SetVFs(pf1, 7)
	c.published(publishedOfAll(7, 100))
	c.SetVFs(pf1, 0)
	c.SetVFs(pf1, 4)
	c.published(publishedOfAll(4, 200))
	c.before = c.functionState()      // the new functions have different addresses
	c.must(os.RemoveAll(pluginState)) // contains the plugin's record for the removed function, which DEL did not find
}

// ipv4 returns the IPv4 address of a link in a pod.
func ipv4(p *pod, name string) (address string) {
	p.WithLink(name, func(link netlink.Link) error {
		addresses, err := netlink.AddrList(link, netlink.FAMILY_V4)
		if err == nil && len(addresses) != 1 {
			err = fmt.Errorf("%s has the addresses %v", name, addresses)
		}
		if err == nil {
			address = addresses[0].IP.String()
		}
		return err
	})
	return address
}
