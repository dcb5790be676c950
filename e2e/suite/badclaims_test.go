package suite

import (
	"fmt"
	"strings"
	"testing"
)

// Claims that nothing good can come of: the pod is told why, waits, holds nothing, and goes when it is deleted. The classes are an
// administrator's own; ours can't be wrong in these ways, and the API server refuses much of it for ours before any node sees it.
func TestBadClaims(t *testing.T) {
	e := newEnv(t, "bad")
	e.offerMacvlan("ba0", "10.171.0.0/24")
	e.veth("ba1")
	e.apply(documents(expose("ba1", "macvlan", true, "ba1"), topology("ba-two", `
- {name: left, type: macvlan, selector: {cel: 'device.attributes["dra.networking"].ifName == "ba0"'}}
- {name: right, type: macvlan, selector: {cel: 'device.attributes["dra.networking"].ifName == "ba1"'}}`)))
	e.offer("ba0", "ba1")
	e.apply(documents(
		ownClass("bad-bare", "ba0", ""),
		ownClass("bad-forged", "ba0", `{networkTopologyRef: {name: ba0}, step: uplink, config: {type: bridge}}`),
		ownClass("bad-words", "ba0", `{say: please}`),
		ownClass("bad-topology", "ba0", `{networkTopologyRef: {name: ba-vanished}, step: uplink}`),
		ownClass("bad-step", "ba0", `{networkTopologyRef: {name: ba0}, step: downlink}`),
		ownClass("bad-left", "ba0", `{networkTopologyRef: {name: ba-two}, step: left}`),
		ownClass("bad-right", "ba1", `{networkTopologyRef: {name: ba-two}, step: right}`),
	))
	before := e.state()
	for _, test := range []struct {
		name, claims string
		change       func(pod string) string
		wants        []string
	}{
		{"class-without-topology", claimTemplate("bare", "bad-bare"), nil, []string{"does not say which NetworkTopology", "use a class that the controller made"}},
		{"forged-parameters", claimTemplate("forged", "bad-forged"), nil, []string{"cannot read parameters", `unknown field "config"`}},
		{"malformed-parameters", claimTemplate("words", "bad-words"), nil, []string{"cannot read parameters", `unknown field "say"`}},
		{"vanished-topology", claimTemplate("vanished", "bad-topology"), nil, []string{"NetworkTopology ba-vanished does not exist any more"}},
		{"unknown-step", claimTemplate("step", "bad-step"), nil, []string{"NetworkTopology ba0", "downlink", "the topology changed after scheduling"}},
		{"topology-split-over-claims", claimTemplate("left", "bad-left") + "---" + claimTemplate("right", "bad-right"), func(pod string) string {
			return strings.NewReplacer("resourceClaimTemplateName: left}", "resourceClaimTemplateName: left}, {name: second, resourceClaimTemplateName: right}",
				"claims: [{name: net}]", "claims: [{name: net}, {name: second}]").Replace(pod)
		}, []string{"has no device for root step", "add a request"}},
		{"configuration-in-the-claim", strings.Replace(claimTemplate("config", "ba0-uplink"), "devices:", `devices:
      config: [{opaque: {driver: dra.networking, parameters: {networkTopologyRef: {name: ba0}, step: uplink}}}]`, 1), nil,
			[]string{`unknown field "networkTopologyRef"`, "a claim may set [mac ips interfaceName] and nothing else"}},
		{"all-devices", strings.Replace(claimTemplate("all", "ba0-uplink"), "uplink}", "uplink, allocationMode: All}", 1), nil, []string{"allocationMode All", "ask for a count"}},
		{"host-network", claimTemplate("host", "ba0-uplink"), func(pod string) string {
			return strings.Replace(pod, "spec:\n", "spec:\n  hostNetwork: true\n", 1)
		}, []string{"uses the host's network", "remove hostNetwork or the claim"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := e.part(t)
			e.create(test.claims)
			template := strings.TrimSuffix(strings.Fields(test.claims[strings.Index(test.claims, "metadata: {name: ")+len("metadata: {name: "):])[0], "}")
			bad := pod(test.name, template)
			if test.change != nil {
				bad = test.change(bad)
			}
			e.create(bad)
			e.event(test.name, test.wants...)
			if containers := e.containersOf(test.name); len(containers) > 0 {
				t.Errorf("containers run: %v", containers)
			}
			e.deleting(test.name)
			e.gone(test.name)
			e.asItWas(before)
		})
	}
}

// A claim for a device that went after the scheduler had chosen it is told so.
func TestDeviceThatIsGoneAfterScheduling(t *testing.T) {
	e := newEnv(t, "went")
	e.offerMacvlan("we0", "10.172.0.0/24")
	before := e.state()
	allocation := e.allocationOf("first", "we0-uplink")
	allocation.Devices.Results[0].Device = "we7"
	e.claimWith("late", "we0-uplink", allocation)
	e.event("late", "device we7 of pool", "is not offered any more")
	e.deleting("late")
	e.gone("late")
	e.deleteClaims("late")
	e.asItWas(before)
}

// Who only watches a device (adminAccess) gets no interface, keeps nobody from it, and nothing of the device.
func TestAdminAccess(t *testing.T) {
	e := newEnv(t, "admin")
	e.veth("ad0")
	e.apply(documents(expose("ad0", "host-device", false, "ad0"), topology("ad0", `
- {name: link, type: host-device, selector: {cel: 'device.attributes["dra.networking"].ifName == "ad0"'}}`), claimTemplate("ad0", "ad0-link")))
	e.offer("ad0")
	before := e.state()
	if output, err := e.kubectl("", "label", "namespace", e.namespace, "resource.kubernetes.io/admin-access=true"); err != nil {
		t.Fatal(err, output)
	}
	e.create(strings.Replace(claimTemplate("watch", "ad0-link"), "ad0-link}", "ad0-link, adminAccess: true}", 1))
	e.create(documents(pod("watcher", "watch"), pod("owner", "ad0")))
	e.ready("watcher", "owner")
	if shown := e.inPod("owner", "ip", "-o", "link"); !strings.Contains(shown, "net1") {
		t.Errorf("the owner's links are\n%s", shown)
	}
	if shown := e.inPod("watcher", "ip", "-o", "link"); strings.Contains(shown, "net1") {
		t.Errorf("the watcher's links are\n%s", shown)
	}
	e.deleting("watcher")
	e.gone("watcher")
	if shown := e.inPod("owner", "ip", "-o", "link"); !strings.Contains(shown, "net1") {
		t.Errorf("after the watcher has gone the owner's links are\n%s", shown)
	}
	e.deleting("owner")
	e.gone("owner")
	e.asItWas(before)
}

// ownClass is a DeviceClass that the controller did not make, for a link, with or without parameters for the driver.
func ownClass(name, link, parameters string) string {
	config := ""
	if parameters != "" {
		config = fmt.Sprintf("\n  config: [{opaque: {driver: dra.networking, parameters: %s}}]", parameters)
	}
	return fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: %s}
spec:
  selectors:
  - cel: {expression: 'device.driver == "dra.networking" && device.attributes["dra.networking"].ifName == "%s"'}%s
`, name, link, config)
}
