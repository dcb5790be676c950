package suite

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// If the topology allows it, a claim can set the MAC address, the IP addresses and the name of an interface, even for a
// step after the root step. The webhook rejects values that every node would reject; TestBadClaims covers the errors
// reported by nodes.
func TestClaimParameters(t *testing.T) {
	e := newEnv(t, "wishes")
	e.veth("wi0")
	e.apply(documents(expose("wi0", "macvlan", true, "wi0"), topology("wi", `
- name: uplink
  type: macvlan
  selector: {cel: 'device.attributes["dra.networking"].ifName == "wi0"'}
  claimParameters: [mac, interfaceName]
- name: port
  type: bridge
  dependOn: [uplink]
  ifName: data0
  claimParameters: [ips]
  config: {bridge: br-wi, ipam: {type: host-local, subnet: 10.173.0.0/24}}
- name: tune
  type: tuning
  dependOn: [port]
  config: {mtu: 1400}`)))
	e.offer("wi0")
	e.Cleanup(func() { _ = e.cluster.DeleteLink("br-wi") })
	e.create(documents(
		claimParameters("good",
			`{apiVersion: networking.dra.io/v1alpha1, kind: ClaimParameters, mac: "02:00:00:00:17:03", interfaceName: fast0}`, `{step: port, ips: [10.173.0.77/24]}`),
		pod("good", "good"),
	))
	e.ready("good")
	if shown := e.inPod("good", "ip", "-o", "link", "show", "dev", "fast0"); !strings.Contains(shown,
		"02:00:00:00:17:03") {
		t.Errorf("want MAC address 02:00:00:00:17:03 on the uplink, got\n%s", shown)
	}
	if shown := e.inPod("good", "ip", "-o", "addr", "show", "dev", "data0"); !strings.Contains(shown,
		"inet 10.173.0.77/24") {
		t.Errorf("want 10.173.0.77/24 on the port, got\n%s", shown)
	}
	if shown := e.inPod("good", "ip", "-o", "link", "show", "dev", "data0"); !strings.Contains(shown, "mtu 1400") {
		t.Errorf("want MTU 1400 on the port, got\n%s", shown)
	}
	// The pod uses a class, so by now, the controller has recorded the class.
	for _, refused := range []struct{ parameters, why string }{
		{`{step: port, mac: "02:00:00:00:17:04"}`, `sets mac of step "port", which the topology does not allow`},
		{`{ips: [10.173.0.300/24]}`, `"10.173.0.300/24" is not an address with a prefix length`},
		{`{interfaceName: eth0}`, `"eth0" belongs to the pod's own network`},
		{`{step: port, ips: [10.9.9.9/24]}`, `claim wishes/refused has it in ips for step "port"`},
	} {
		output, err := e.kubectl(claimParameters("refused", refused.parameters), "create", "-f", "-")
		if err == nil || !strings.Contains(output, refused.why) {
			t.Errorf("for %s, got response %s (%v), want rejection %s", refused.parameters, output, err, refused.why)
		}
	}
	e.deleting("good")
	e.gone("good")
}

// claimParameters returns a claim template for a port, with interface parameters.
func claimParameters(name string, parameters ...string) string {
	configs := make([]string, len(parameters))
	for i, parameter := range parameters {
		configs[i] = fmt.Sprintf("{requests: [r0], opaque: {driver: dra.networking, parameters: %s}}", parameter)
	}
	return strings.Replace(claimTemplate(name, "wi-uplink"), "devices:",
		fmt.Sprintf("devices:\n      config: [%s]", strings.Join(configs, ", ")), 1)
}

// A claim for eight devices gets eight interfaces, each from a separate instance of the topology, and all devices are
// restored.
func TestEightInterfacesInOneClaim(t *testing.T) {
	e := newEnv(t, "eight")
	names := make([]string, 8)
	for i := range names {
		names[i] = fmt.Sprintf("ei%d", i)
		e.veth(names[i])
	}
	e.apply(documents(expose("ei", "host-device", false, names...), topology("ei", `
- name: link
  type: host-device
  selector: {cel: 'device.attributes["dra.networking"].ifName.startsWith("ei")'}
  config: {ipam: {type: host-local, subnet: 10.174.0.0/24}}
- name: tune
  type: tuning
  dependOn: [link]
  config: {mtu: 1300}`)))
	e.offer(names...)
	before := e.state()
	e.create(documents(strings.Replace(claimTemplate("all", "ei-link"), "ei-link}", "ei-link, count: 8}", 1),
		pod("p", "all")))
	e.ready("p")
	links, addresses := e.inPod("p", "ip", "-o", "link"), e.inPod("p", "ip", "-o", "-4", "addr")
	for i := range names {
		name := fmt.Sprintf("net%d", i+1)
		if !regexp.MustCompile(name + `(@\S+)?:.* mtu 1300 `).MatchString(links) {
			t.Errorf("%s does not match the topology:\n%s", name, links)
		}
		if !regexp.MustCompile(name + ` +inet 10\.174\.0\.`).MatchString(addresses) {
			t.Errorf("%s has no address in 10.174.0.0/24:\n%s", name, addresses)
		}
	}
	e.deleting("p")
	e.gone("p")
	e.asItWas(before)
}
