package suite

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/cnichain/claimspec/claimspectest"
)

// If a claim can never succeed, an event on the pod reports the reason, and the pod waits without holding a device and
// can still be deleted. Some cases use classes written by an administrator, because classes created by the controller
// cannot have these errors. In addition, the API server rejects many of these claims before they reach a node if they
// use the controller's classes.
func TestBadClaims(t *testing.T) {
	e := newEnv(t, "bad")
	e.veth("ba0")
	e.veth("ba1")
	e.apply(documents(expose("ba", "macvlan", true, "ba0", "ba1"), claimspectest.Topologies("ba0", "ba1"),
		claimspectest.Classes("ba0", "ba1")))
	e.offer("ba0", "ba1")
	before := e.state()
	for _, bad := range claimspectest.Cases(t) {
		t.Run(bad.Name, func(t *testing.T) {
			e := e.part(t)
			// The webhook rejects these claims if they use the controller's classes. With any other class, they reach
			// the driver.
			e.create(claimspectest.OfOwnClasses(bad.Templates()))
			e.create(podOf(bad))
			e.event(bad.Name, bad.Wants...)
			if containers := e.containersOf(bad.Name); len(containers) > 0 {
				t.Errorf("containers of the rejected pod are running: %v", containers)
			}
			e.deleting(bad.Name)
			e.gone(bad.Name)
			e.asItWas(before)
		})
	}
}

// podOf returns a pod that uses the claims in a test case.
func podOf(bad claimspectest.Case) string {
	var claims, uses []string
	for i, template := range bad.TemplateNames() {
		claims = append(claims, fmt.Sprintf("{name: net%d, resourceClaimTemplateName: %s}", i, template))
		uses = append(uses, fmt.Sprintf("{name: net%d}", i))
	}
	return strings.NewReplacer(
		"spec:\n", fmt.Sprintf("spec:\n  hostNetwork: %t\n  resourceClaims: [%s]\n", bad.HostNetwork,
			strings.Join(claims, ", ")),
		"    imagePullPolicy:", fmt.Sprintf("    resources: {claims: [%s]}\n    imagePullPolicy:",
			strings.Join(uses, ", ")),
	).Replace(pod(bad.Name, ""))
}

// If a device disappears after its pod was scheduled, an event for the pod reports this.
func TestDeviceThatIsGoneAfterScheduling(t *testing.T) {
	e := newEnv(t, "went")
	e.offerMacvlan("we0", "10.172.0.0/24")
	before := e.state()
	allocation := e.allocationOf("first", "we0-uplink")
	allocation.Devices.Results[0].Device = "we7"
	e.claimWith("late", "we0-uplink", allocation)
	e.event("late", "device we7 of pool", "is no longer offered")
	e.deleting("late")
	e.gone("late")
	e.deleteClaims("late")
	e.asItWas(before)
}

// A claim with adminAccess only observes a device: its pod gets no interface, and the claim does not consume any of the
// device's resources or block other claims.
func TestAdminAccess(t *testing.T) {
	e := newEnv(t, "admin")
	e.veth("ad0")
	e.apply(documents(expose("ad0", "host-device", false, "ad0"), topology("ad0", `
- {name: link, type: host-device, selector: {cel: 'device.attributes["dra.networking"].ifName == "ad0"'}}`),
		claimTemplate("ad0", "ad0-link")))
	e.offer("ad0")
	before := e.state()
	if output, err := e.kubectl("", "label", "namespace", e.namespace,
		"resource.kubernetes.io/admin-access=true"); err != nil {
		t.Fatal(err, output)
	}
	e.create(strings.Replace(claimTemplate("watch", "ad0-link"), "ad0-link}", "ad0-link, adminAccess: true}", 1))
	e.create(documents(pod("watcher", "watch"), pod("owner", "ad0")))
	e.ready("watcher", "owner")
	if shown := e.inPod("owner", "ip", "-o", "link"); !strings.Contains(shown, "net1") {
		t.Errorf("want net1 in the owner's links, got\n%s", shown)
	}
	if shown := e.inPod("watcher", "ip", "-o", "link"); strings.Contains(shown, "net1") {
		t.Errorf("want no net1 in the watcher's links, got\n%s", shown)
	}
	e.deleting("watcher")
	e.gone("watcher")
	if shown := e.inPod("owner", "ip", "-o", "link"); !strings.Contains(shown, "net1") {
		t.Errorf("after the watcher ended, want net1 in the owner's links, got\n%s", shown)
	}
	e.deleting("owner")
	e.gone("owner")
	e.asItWas(before)
}
