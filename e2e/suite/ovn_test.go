package suite

import (
	"fmt"
	"strings"
	"testing"
)

// localnet makes what OVN-Kubernetes and its administrator would have made: the bridge br-int, with a link as the
// uplink of the physical network.
func (e *env) localnet(uplink, physicalNetwork string) {
	e.Helper()
	e.veth(uplink)
	if err := e.cluster.AddBridge("br-int", uplink); err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() {
		if err := e.cluster.DeleteLink("br-int"); err != nil {
			e.Error(err)
		}
	})
	handle, err := e.cluster.Netlink()
	if err != nil {
		e.Fatal(err)
	}
	defer handle.Close()
	bridge, err := handle.LinkByName("br-int")
	if err == nil {
		err = handle.LinkSetAlias(bridge, "ovn-bridge-mappings="+physicalNetwork+":br-int")
	}
	if err != nil {
		e.Fatal(err)
	}
}

// localnetPolicy offers an uplink to those who name the physical network, as in example 9 of the published design.
func localnetPolicy(name, uplink string) string {
	return fmt.Sprintf(`
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: %s}
spec:
  priority: 150
  selector: {cel: 'device.attributes["dra.networking"].ifName == "%s"'}
  exposure:
    deviceNameSuffix: -localnet
    allowMultipleAllocations: true
    capacity: {connections: {value: "128", requestPolicy: {default: "1"}}}
    supportedCNIPlugins: [{name: ovn-k8s-cni-overlay, exclusive: false, consumePerAllocation: {connections: 1}}]
    additionalAttributes: {dra.networking/physicalNetworkName: localnet1}
`, name, uplink)
}

const localnetSelector = `selector: {cel: 'device.attributes["dra.networking"].?physicalNetworkName.orValue("") == "localnet1"'}`

// Two pods on a localnet reach each other, each with a veth of its own; the uplink stays on the node.
func TestOVNKubernetesLocalnet(t *testing.T) {
	e := newEnv(t, "localnet")
	e.localnet("ov0", "localnet1")
	e.apply(documents(localnetPolicy("ovn", "ov0"), topology("ovn", `
- name: net
  type: ovn-k8s-cni-overlay
  network: tenant
  `+localnetSelector+`
  config: {topology: localnet, role: secondary, netAttachDefName: localnet/tenant, physicalNetworkName: localnet1, subnets: 10.108.0.0/24, excludeSubnets: 10.108.0.0/30}
- name: tune
  type: tuning
  dependOn: [net]
  config: {mtu: 1380}`), claimTemplate("ovn", "ovn-net")))
	e.offer("ov0-localnet")
	pods := documents(pod("a", "ovn"), pod("b", "ovn"))
	e.apply(pods)
	e.ready("a", "b")
	for _, name := range []string{"a", "b"} {
		if shown := e.inPod(name, "ip", "addr", "show", "dev", "net1"); !containsAll(shown,
			[]string{"mtu 1380", "inet 10.108.0.", "/24", "link/ether 0a:58:0a:6c:00:0"}) {
			t.Errorf("net1 of %s is\n%s", name, shown)
		}
		e.deviceStatus(name, `"interfaceName":"net1"`, `"10.108.0.`, `"type":"Ready"`, `"status":"True"`)
	}
	peer := strings.Split(strings.Fields(e.inPod("b", "sh", "-c", "ip -4 -o addr show dev net1"))[3], "/")[0]
	if shown := e.inPod("a", "ping", "-c", "1", "-w", "5", "-I", "net1", peer); !strings.Contains(shown,
		"1 packets received") {
		t.Errorf("ping says\n%s", shown)
	}
	e.link("ov0")
	e.remove(pods)
}

// A localnet that is given a device says so on the pod. The built-in schema doesn't let it come to that: here somebody
// has put one of his own in its place.
func TestOVNKubernetesLocalnetWithADevice(t *testing.T) {
	e := newEnv(t, "localdevice")
	e.localnet("od0", "localnet1")
	e.refused(topology("odl", localnetStep(`, deviceID: "0000:41:10.0"`)), "spec.steps[0].config.deviceID")
	e.apply(`
apiVersion: networking.dra.io/v1alpha1
kind: CNIPluginSchema
metadata: {name: od}
spec: {cniType: ovn-k8s-cni-overlay}
`)
	e.apply(documents(localnetPolicy("od", "od0"), claimTemplate("od", "odl-net")))
	e.apply(topology("odl", localnetStep(`, deviceID: "0000:41:10.0"`)))
	e.offer("od0-localnet")
	failing := pod("p", "od")
	e.apply(failing)
	e.event("p", "NetworkAttachFailed", `step "net" (ovn-k8s-cni-overlay) of topology odl`,
		"deviceID 0000:41:10.0 is given for the localnet odl.net: its uplink stays on the host")
	e.remove(failing)
}

func localnetStep(more string) string {
	return `
- name: net
  type: ovn-k8s-cni-overlay
  ` + localnetSelector + `
  config: {topology: localnet, netAttachDefName: localdevice/net, physicalNetworkName: localnet1` + more + `}`
}
