package importer

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// importText imports documents. It returns the result and the documents that the command would write.
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

// A value of the wrong type might have restricted the selection, so a policy with such a value selects nothing until
// the user has resolved the finding.
func TestWhatCannotBeReadSelectsNothing(t *testing.T) {
	const plugin, operator, shared, nvidia = `
apiVersion: v1
kind: ConfigMap
metadata: {name: sriovdp-config, namespace: kube-system}
data: {config.json: '{"resourceList": [%s]}'}
`, `
apiVersion: sriovnetwork.openshift.io/v1
kind: SriovNetworkNodePolicy
metadata: {name: pool, namespace: operator}
spec: {resourceName: fast, numVfs: 4, nicSelector: {pfNames: [p0]}, %s}
`, `
apiVersion: v1
kind: ConfigMap
metadata: {name: rdma-devices, namespace: kube-system}
data: {config.json: '{"configList": [%s]}'}
`, `
apiVersion: mellanox.com/v1alpha1
kind: NicClusterPolicy
metadata: {name: nic-cluster-policy}
spec:
  sriovDevicePlugin: {config: '{"resourceList": [{"resourceName": "fast", "selectors": [{"vendors": ["15b3"]}]}]}'}
  %s
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
		fmt.Sprintf(shared, `{"resourceName": "a", "rdmaHcaMax": 2, "devices": ["p0v0"]}`):                     true,
		fmt.Sprintf(shared, `{"resourceName": "a", "rdmaHcaMax": 2, "selectors": {"linkTypes": ["ether"]}}`):   true,
		fmt.Sprintf(shared, `{"resourceName": "a", "rdmaHcaMax": 0, "selectors": {"vendors": ["15b3"]}}`):      false,
		fmt.Sprintf(shared, `{"resourceName": "a", "rdmaHcaMax": "2", "selectors": {"vendors": [15]}}`):        false,
		fmt.Sprintf(shared, `{"resourceName": "a", "rdmaHcaMax": 2, "devices": "p0v0", "selectors": "15b3"}`):  false,
		fmt.Sprintf(shared, `{"resourceName": "a", "rdmaHcaMax": 2, "selectors": {"pfNames": ["p0"]}}`):        false,
		fmt.Sprintf(shared, `{"resourceName": "a", "rdmaHcaMax": 2, "selectors": {}}`):                         false,
		fmt.Sprintf(shared, `{"resourceName": "a", "rdmaHcaMax": 2}`):                                          false,
		fmt.Sprintf(shared, `{"resourceName": "a", "rdmaHcaMax": 2, "selectors": {"linkTypes": ["Ether"]}}`):   false,
		fmt.Sprintf(shared, `{"resourceName": "a", "rdmaHcaMax": 2, "selectors": {"linkTypes": ["eth"]}}`):     false,
		fmt.Sprintf(shared, `{"resourceName": "a", "rdmaHcaMax": 2, "devices": ["p0v0"],
			"selectors": {"vendors": ["15b3"]}}`): false,
		fmt.Sprintf(shared, `{"resourceName": "a", "rdmaHcaMax": 2, "devices": ["p0v0"],
			"selectors": {"vendors": []}}`): true,
		fmt.Sprintf(nvidia, ""):                     true,
		fmt.Sprintf(nvidia, "nodeAffinity: worker"): false,
		fmt.Sprintf(nvidia, affinity("{matchExpressions: [{key: rack, operator: Exists}]}")):        true,
		fmt.Sprintf(nvidia, affinity("{matchFields: [{key: metadata.name}]}")):                      false,
		fmt.Sprintf(nvidia, affinity("{matchExpressions: [{key: rack, operator: Exists, on: 1}]}")): false,
		fmt.Sprintf(nvidia, affinity("{matchExpressions: []}")):                                     false,
		fmt.Sprintf(nvidia, affinity("{matchExpressions: [{key: a, operator: Exists}]}, "+
			"{matchExpressions: [{key: rack, operator: Exists}]}")): false,
	} {
		result, made := importText(t, input, options())
		policies := policiesIn(t, made)
		if len(policies) != 1 {
			t.Fatalf("%s: got %d policies, want 1: %v", input, len(policies), result.Findings)
		}
		function := discovery.Device{Name: "p0v0", Type: discovery.TypeVF, Kind: "device", PCIAddress: "0000:03:02.0",
			PFName: "p0", Vendor: "15b3", Product: "1018", NUMANode: discovery.None, VLANID: discovery.None,
			Interface: "p0v0", RDMA: true}
		decision := policy.Resolve(discovery.Facts{Devices: []discovery.Device{function}}, policies,
			policy.Node{Name: "n", Labels: map[string]string{"feature.node.kubernetes.io/pci-15b3.present": "true",
				"network.nvidia.com/operator.mofed.wait": "false", "rack": "r1"}})
		if got := len(decision.Devices[0].Personas) > 0; got != selects {
			t.Errorf("%s: the policy selects the function: %t; selector: %s", input, got, policies[0].Spec.Selector.CEL)
		}
	}
}

// Each resource and each network offers the device that they share, even if their names are long or the same.
func TestEntriesOfOneDevice(t *testing.T) {
	const resource = `{"resourceName": "%s", "rdmaHcaMax": 2, "selectors": {"ifNames": ["p0"]}}`
	var resources []string
	for _, name := range []string{"macvlan", "rdma_shared_device_storage_rail_a", "rdma_shared_device_storage_rail_b"} {
		resources = append(resources, fmt.Sprintf(resource, name))
	}
	_, made := importText(t, `
apiVersion: v1
kind: ConfigMap
metadata: {name: rdma-devices, namespace: kube-system}
data: {config.json: '{"configList": [`+strings.Join(resources, ", ")+`]}'}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: lan, namespace: apps}
spec: {config: '{"type": "macvlan", "master": "p0"}'}
`, options())
	policies := policiesIn(t, made)
	device := discovery.Device{Name: "p0", Kind: "device", PCIAddress: "0000:03:00.0", NUMANode: discovery.None,
		VLANID: discovery.None, Interface: "p0", RDMA: true}
	decision := policy.Resolve(discovery.Facts{Devices: []discovery.Device{device}}, policies, policy.Node{Name: "n"})
	if got := len(decision.Devices[0].Personas); len(policies) != 4 || got != 4 {
		t.Errorf("%d policies offer %d entries of the device, want 4 of both: %+v", len(policies), got,
			decision.Devices[0])
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

// A pod gets as many claims as it previously got devices. Later containers reuse the devices of an init container that
// terminates. A value that is not a small integer becomes a finding, and its size does not affect the parsing time.
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
	single, double := asking("{intel.com/dpdk: 1}"), asking("{intel.com/dpdk: '2'}")
	for name, test := range map[string]struct {
		init, containers string
		claims           int
		finding          string
	}{
		"the same in an init container":   {single, single, 1, ""},
		"more in an init container":       {double + single, single, 2, ""},
		"in two containers":               {"", single + double, 3, ""},
		"in a sidecar":                    {sidecar, single, 2, ""},
		"in a sidecar and an init beside": {sidecar + double, single, 3, ""},
		"in an init container before":     {double + sidecar, asking("{}"), 2, ""},
		"an exponent":                     {"", asking("{intel.com/dpdk: '1e30'}"), 0, "is not a number of devices"},
		"a fraction":                      {"", asking("{intel.com/dpdk: 1.5}"), 0, "is not a number of devices"},
		"more than there are":             {"", asking("{intel.com/dpdk: 33}"), 0, "is not a number of devices"},
		"less than none":                  {"", asking("{intel.com/dpdk: -1}"), 0, "is not a number of devices"},
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
				t.Errorf("want finding %q, got: %s", test.finding, found)
			}
		})
	}
}

// Claims for a network request the network's class, even if a template for a single pod already has the default name of
// the network's template.
func TestTemplatesOfOneName(t *testing.T) {
	_, made := importText(t, networkOf("data", "example.com/data")+networkOf("web-data", "example.com/other")+`---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: apps, annotations: {k8s.v1.cni.cncf.io/networks: data@fast0}}
spec: {containers: [{name: main, image: none}]}
---
apiVersion: v1
kind: Pod
metadata: {name: other, namespace: apps, annotations: {k8s.v1.cni.cncf.io/networks: web-data}}
spec: {containers: [{name: main, image: none}]}
`, options())
	classes, templates := map[string]string{}, map[string]string{}
	for i := range made {
		if made[i].Kind != "Pod" && made[i].Kind != "ResourceClaimTemplate" {
			continue
		}
		object, problems := manifest.DecodeStrict(&made[i], nil, corev1.AddToScheme, resourceapi.AddToScheme)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		switch o := object.(type) {
		case *resourceapi.ResourceClaimTemplate:
			classes[o.Name] = o.Spec.Spec.Devices.Requests[0].Exactly.DeviceClassName
		case *corev1.Pod:
			templates[o.Name] = *o.Spec.ResourceClaims[0].ResourceClaimTemplateName
		}
	}
	if classes[templates["web"]] != "data-sriov" || classes[templates["other"]] != "web-data-sriov" ||
		templates["web"] == templates["other"] {
		t.Errorf("pods have templates %v with classes %v, want different classes", templates, classes)
	}
}

// Objects without metadata or without a pod become findings and do not abort the import.
func TestObjectsWithoutAPod(t *testing.T) {
	network := networkOf("data", "example.com/data")
	for _, text := range []string{
		`{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: apps, annotations: {k8s.v1.cni.cncf.io/networks: data}}}`,
		`{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: a, annotations: {k8s.v1.cni.cncf.io/networks: data}}, spec: 1}`,
		`{apiVersion: v1, kind: Pod, spec: {containers: [{name: main, resources: {limits: {example.com/data: 1}}}]}}`,
		`{apiVersion: v1, kind: Deployment, metadata: {name: web}, spec: {template: 1}}`,
		`{apiVersion: v1, kind: Deployment, metadata: {name: web}}`,
	} {
		result, _ := importText(t, network+"---\napiVersion: v1\nkind: List\nitems: ["+text+"]\n", options())
		if !slices.ContainsFunc(result.Findings, func(f Finding) bool {
			return f.Action && strings.Contains(f.Reason, "is missing")
		}) {
			t.Errorf("%s: no finding says that something is missing: %v", text, result.Findings)
		}
	}
}

// The search for pod templates does not build a path for each item of a list, which would take quadratic time.
func TestTemplatesAreFoundInLinearTime(t *testing.T) {
	const size = 1 << 16
	template := map[string]any{"spec": map[string]any{"containers": []any{}}}
	document := map[string]any{"spec": map[string]any{strings.Repeat("k", size): append(make([]any, size), template)}}
	var before, after runtime.MemStats
	found := 0
	runtime.ReadMemStats(&before)
	eachTemplate(document, func(string, map[string]any) { found++ })
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; found != 1 || allocated > 256*size {
		t.Errorf("found %d templates and allocated %d bytes, want 1 and at most %d", found, allocated, 256*size)
	}
}

// Scalable functions are selected by NIC and number. They have the PCI address of the NIC.
func TestScalableFunctionsAreSelected(t *testing.T) {
	values, err := decodeJSON[map[string]any](`{"resourceName": "sf", "deviceType": "auxNetDevice", "selectors":
		[{"vendors": ["15b3"], "pciAddresses": ["03:00.0"], "pfNames": ["p0#1-8", "p1"], "auxTypes": ["sf"]}]}`)
	if err != nil {
		t.Fatal(err)
	}
	var findings []Finding
	m := &importer{options: options(), names: map[string]bool{}}
	p := m.readResource(newFields(&source{findings: &findings}, "", values))
	want := strings.ReplaceAll(`A.type == "sf" && A.vendor == "15b3" && A.pfAddress == "0000:03:00.0" && `+
		`((A.pfName == "p0" && A.sfNumber >= 1 && A.sfNumber <= 8) || A.pfName == "p1")`, "A.", attribute(""))
	if got := strings.Join(p.terms, " && "); len(findings) > 0 || got != want {
		t.Errorf("got findings %v and the selector\n%s, want\n%s", findings, got, want)
	}
}

// affinity returns the field nodeAffinity with required terms.
func affinity(terms string) string {
	return "nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [" + terms + "]}}"
}
