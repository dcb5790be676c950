package importer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// importText imports documents, and returns them as the command writes them.
func importText(t *testing.T, text string, options Options) (*Result, []manifest.Document) {
	t.Helper()
	documents, err := manifest.Read("-", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	result, err := Import(documents, options)
	if err != nil {
		t.Fatal(err)
	}
	data, err := result.YAML()
	if err != nil {
		t.Fatal(err)
	}
	made, err := manifest.Read("-", strings.NewReader(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	return result, made
}

// A value of another type may restrict what is selected, so a policy with one selects nothing until somebody has seen
// the finding.
func TestWhatCannotBeReadSelectsNothing(t *testing.T) {
	const plugin, operator = `
apiVersion: v1
kind: ConfigMap
metadata: {name: sriovdp-config, namespace: kube-system}
data: {config.json: '{"resourceList": [%s]}'}
`, `
apiVersion: sriovnetwork.openshift.io/v1
kind: SriovNetworkNodePolicy
metadata: {name: pool, namespace: operator}
spec: {resourceName: fast, numVfs: 4, nicSelector: {pfNames: [p0]}, %s}
`
	for input, selects := range map[string]bool{
		fmt.Sprintf(plugin, `{"resourceName": "fast", "selectors": [{"vendors": ["15b3"]}]}`):                  true,
		fmt.Sprintf(plugin, `{"resourceName": "fast", "selectors": {"vendors": "15b3"}}`):                      true,
		fmt.Sprintf(plugin, `{"resourceName": "fast", "selectors": "none"}`):                                   false,
		fmt.Sprintf(plugin, `{"resourceName": "fast", "selectors": ["15b3"]}`):                                 false,
		fmt.Sprintf(plugin, `{"resourceName": "fast", "selectors": [{"vendors": [15]}]}`):                      false,
		fmt.Sprintf(plugin, `{"resourceName": "fast", "deviceType": 5, "selectors": [{"vendors": ["15b3"]}]}`): false,
		fmt.Sprintf(operator, `nodeSelector: {}`):                                                              true,
		fmt.Sprintf(operator, `nodeSelector: worker-1`):                                                        false,
		fmt.Sprintf(operator, `nodeSelector: {rack: 5}`):                                                       false,
		fmt.Sprintf(operator, `linkType: [ib]`):                                                                false,
		fmt.Sprintf(operator, `isRdma: "yes"`):                                                                 false,
	} {
		result, made := importText(t, input, options())
		policies := policiesIn(t, made)
		if len(policies) != 1 {
			t.Fatalf("%s: %d policies: %v", input, len(policies), result.Findings)
		}
		function := discovery.Device{Name: "p0v0", Type: discovery.TypeVF, Kind: "device", PCIAddress: "0000:03:02.0",
			PFName: "p0", Vendor: "15b3", Product: "1018", NUMANode: discovery.None, VLANID: discovery.None}
		decision := policy.Resolve(discovery.Facts{Devices: []discovery.Device{function}}, policies,
			policy.Node{Name: "n"})
		if got := len(decision.Devices[0].Personas) > 0; got != selects {
			t.Errorf("%s: the policy selects the function: %t; it is %s", input, got, policies[0].Spec.Selector.CEL)
		}
	}
}

func policiesIn(t *testing.T, documents []manifest.Document) []policyapi.DeviceExposurePolicy {
	t.Helper()
	var policies []policyapi.DeviceExposurePolicy
	for i := range documents {
		if documents[i].Kind != manifest.KindPolicy {
			continue
		}
		p, err := manifest.DecodePolicy(&documents[i])
		if err != nil {
			t.Fatal(err)
		}
		policies = append(policies, *p)
	}
	return policies
}

// A pod gets as many claims as it would get devices: an init container that ends leaves its own to those after it.
// What is no small integer is a finding, and costs no time.
func TestDevicesOfContainers(t *testing.T) {
	const pool = `
apiVersion: v1
kind: ConfigMap
metadata: {name: sriovdp-config, namespace: kube-system}
data: {config.json: '{"resourceList": [{"resourceName": "dpdk", "selectors": [{"vendors": ["15b3"]}]}]}'}
---
apiVersion: v1
kind: Pod
metadata: {name: app, namespace: apps}
spec:
  initContainers:
%s  containers:
%s`
	const sidecar = "  - {name: main, image: none, restartPolicy: Always, resources: {limits: {intel.com/dpdk: 1}}}\n"
	one, two := asking("{intel.com/dpdk: 1}"), asking("{intel.com/dpdk: '2'}")
	for name, test := range map[string]struct {
		init, containers string
		claims           int
		finding          string
	}{
		"the same in an init container":     {one, one, 1, ""},
		"more in an init container":         {two + one, one, 2, ""},
		"in two containers":                 {"", one + two, 3, ""},
		"in a sidecar":                      {sidecar, one, 2, ""},
		"in a sidecar and an init beside":   {sidecar + two, one, 3, ""},
		"in an init container before":       {two + sidecar, asking("{}"), 2, ""},
		"an exponent":                       {"", asking("{intel.com/dpdk: '1e30'}"), 0, "is not a number of devices"},
		"a fraction":                        {"", asking("{intel.com/dpdk: 1.5}"), 0, "is not a number of devices"},
		"more than there are":               {"", asking("{intel.com/dpdk: 33}"), 0, "is not a number of devices"},
		"less than none":                    {"", asking("{intel.com/dpdk: -1}"), 0, "is not a number of devices"},
		"a number that takes long to parse": {"", asking("{intel.com/dpdk: '" + strings.Repeat("9", 40) +
			"e999999999'}"), 0, "is not a number of devices"},
	} {
		t.Run(name, func(t *testing.T) {
			result, made := importText(t, fmt.Sprintf(pool, test.init, test.containers), options())
			claims := -1
			for i := range made {
				if made[i].Kind == "Pod" {
					claims = strings.Count(string(made[i].Data), "resourceClaimTemplateName: ")
				}
			}
			if claims != test.claims && (claims != -1 || test.claims != 0) {
				t.Errorf("the pod has %d claims, want %d", claims, test.claims)
			}
			found := ""
			for _, f := range result.Findings {
				found += f.Reason + "\n"
			}
			if !strings.Contains(found, test.finding) {
				t.Errorf("no finding %q: %s", test.finding, found)
			}
		})
	}
}
