package suite

import (
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// The driver accepts policies and topologies in any served API version, and claims with parameters in that version.
func TestEveryServedVersionIsAttached(t *testing.T) {
	e := newEnv(t, "versions")
	served := v1alpha1.ServedVersions()
	newest := served[len(served)-1].String()
	e.veth("ve0")
	e.apply(strings.ReplaceAll(documents(expose("ve0", "macvlan", true, "ve0"), topology("ve", `
- name: uplink
  type: macvlan
  selector: {cel: 'device.attributes["dra.networking"].ifName == "ve0"'}
  claimParameters: [interfaceName]`)), served[0].String(), newest))
	e.offer("ve0")
	template := strings.Replace(claimTemplate("newest", "ve-uplink"), "devices:", "devices:\n      config: [{requests: [r0], "+
		"opaque: {driver: dra.networking, parameters: {apiVersion: "+newest+
		", kind: ClaimParameters, interfaceName: beta0}}}]", 1)
	e.create(documents(template, pod("newest", "newest")))
	e.ready("newest")
	if shown := e.inPod("newest", "ip", "-o", "link", "show", "dev", "beta0"); !strings.Contains(shown, "beta0") {
		t.Errorf("want interface beta0, got\n%s", shown)
	}
	e.deleting("newest")
	e.gone("newest")
}
