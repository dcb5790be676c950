package suite

import (
	"strings"
	"testing"
)

// A network with a default route must not replace the cluster's default route. The pod waits, and an event names the
// step and both interfaces. As soon as the topology allows the route, the pod starts.
func TestNetworkWithADefaultRoute(t *testing.T) {
	e := newEnv(t, "route")
	e.veth("dr0")
	steps := `
- name: uplink
  type: macvlan
  selector: {cel: 'device.attributes["dra.networking"].ifName == "dr0"'}
  config: {mode: bridge, ipam: {type: host-local, subnet: 10.230.0.0/24, routes: [{dst: 0.0.0.0/0}]}}`
	e.apply(documents(expose("dr0", "macvlan", true, "dr0"), topology("dr0", steps),
		claimTemplate("dr0", "dr0-uplink")))
	e.offer("dr0")
	before := e.state()
	e.observe()
	e.create(watchedPod("other-route", "resourceClaimTemplateName: dr0", "net1"))
	e.event("other-route", "NetworkAttachFailed", "replaced the pod's IPv4 default route through eth0", "net1",
		"set defaultRoute: true")
	e.deleting("other-route")
	e.gone("other-route")
	e.apply(topology("dr0", strings.Replace(steps, "type: macvlan", "type: macvlan\n  defaultRoute: true", 1)))
	e.create(watchedPod("intended", "resourceClaimTemplateName: dr0", "net1"))
	e.ready("intended")
	shown := e.inPod("intended", "ip", "-4", "route", "show", "default")
	if first, _, _ := strings.Cut(shown, "\n"); !strings.Contains(first, "dev net1") {
		t.Errorf("want net1 in the first default route, got\n%s", shown)
	}
	e.neverStartedEarly()
	e.deleting("intended")
	e.gone("intended")
	e.asItWas(before)
}

// Containers get the device files listed in the topology, and any user in the containers can open these files.
func TestDeviceNodes(t *testing.T) {
	e := newEnv(t, "nodes")
	e.veth("dn0")
	e.apply(documents(expose("dn0", "macvlan", true, "dn0"), topology("dn0", `
- name: uplink
  type: macvlan
  selector: {cel: 'device.attributes["dra.networking"].ifName == "dn0"'}
  deviceNodes: [tun]
  config: {mode: bridge, ipam: {type: host-local, subnet: 10.231.0.0/24}}`), claimTemplate("dn0", "dn0-uplink")))
	e.offer("dn0")
	before := e.state()
	e.observe()
	e.create(strings.Replace(watchedPod("vm", "resourceClaimTemplateName: dn0", "net1"), "    image:",
		"    securityContext: {runAsUser: 1000}\n    image:", 1))
	e.ready("vm")
	if output := e.inPod("vm", "sh", "-c", "test -c /dev/net/tun && : <>/dev/net/tun && echo opened"); !strings.Contains(
		output, "opened") {
		t.Errorf("a user other than root cannot open /dev/net/tun:\n%s", output)
	}
	e.neverStartedEarly()
	e.deleting("vm")
	e.gone("vm")
	e.asItWas(before)
}
