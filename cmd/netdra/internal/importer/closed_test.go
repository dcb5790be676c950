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
