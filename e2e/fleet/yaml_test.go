package fleet

import (
	"fmt"
	"strings"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
)

// early is the exit status of a container that started without its interface.
const early = 77

// markVariable is the environment variable that identifies the processes in a pod.
const markVariable = "POD_OF_TEST"

// persona is one way of offering a link on every node. The policy, the topology and the claim template are named after
// the persona, and the device is named after the link.
type persona struct {
	name, link, plugin, config string
	shared                     bool
}

// personas returns the personas offered by every node, each on a different link.
func personas() []persona {
	return []persona{
		{name: "moved", link: "eth1", plugin: "netdev", config: "ipam: {type: host-local, subnet: 10.201.0.0/24}"},
		{name: "classic", link: "eth2", plugin: "host-device",
			config: "ipam: {type: host-local, subnet: 10.202.0.0/24}"},
		{name: "shared", link: "eth3", plugin: "macvlan", shared: true,
			config: "mode: bridge, ipam: {type: host-local, subnet: 10.203.0.0/24}"},
		{name: "passthru", link: "eth4", plugin: "macvlan",
			config: "mode: passthru, ipam: {type: host-local, subnet: 10.204.0.0/24}"},
	}
}

// objects returns the policies and topologies for all personas.
func objects() string {
	var all []string
	for _, p := range personas() {
		capacity := ""
		if p.shared {
			capacity = `
    capacity: {shares: {value: "64", requestPolicy: {default: "1"}}}`
		}
		all = append(all, fmt.Sprintf(`
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: %[1]s}
spec:
  selector: {cel: 'device.attributes["dra.networking"].ifName == "%[2]s"'}
  exposure:
    allowMultipleAllocations: %[5]v%[7]s
    supportedCNIPlugins: [{name: %[3]s, exclusive: %[6]v}]
---
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: %[1]s}
spec:
  steps:
  - name: link
    type: %[3]s
    selector: {cel: 'device.attributes["dra.networking"].ifName == "%[2]s"'}
    config: {%[4]s}
`, p.name, p.link, p.plugin, p.config, p.shared, !p.shared, capacity))
	}
	return strings.Join(all, "---\n")
}

// templates returns the claim templates for all personas.
func templates() string {
	var all []string
	for _, p := range personas() {
		all = append(all, fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: %[1]s}
spec:
  spec: {devices: {requests: [{name: link, exactly: {deviceClassName: %[1]s-link}}]}}
`, p.name))
	}
	return strings.Join(all, "---\n")
}

// claim returns a claim for a persona.
func claim(name, persona string) string {
	return fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: %s}
spec: {devices: {requests: [{name: link, exactly: {deviceClassName: %s-link}}]}}
`, name, persona)
}

// watchedPod returns a pod whose container exits immediately if net1 has no address when the container starts. claim is
// the field that references the pod's claim, for example "resourceClaimName: x". If node is nil, the pod can run on any
// node.
func watchedPod(name, claim string, node *lab.Node) string {
	selector := ""
	if node != nil {
		selector = "\n  nodeSelector: {kubernetes.io/hostname: " + node.NodeName() + "}"
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  terminationGracePeriodSeconds: 1
  automountServiceAccountToken: false%[3]s
  tolerations: # the test says when a pod ends
  - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute}
  - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute}
  resourceClaims: [{name: net, %[2]s}]
  containers:
  - name: main
    image: localhost/toolbox:e2e
    imagePullPolicy: IfNotPresent
    env: [{name: %[4]s, value: %[1]s}]
    command: [sh, -c, "ip -4 -o addr show dev net1 | grep -q inet || exit %[5]d; exec sleep 86400"]
    resources: {claims: [{name: net}]}
`, name, claim, selector, markVariable, early)
}

// ofTemplate returns the field in a pod that requests a claim generated from a persona's claim template.
func ofTemplate(persona string) string { return "resourceClaimTemplateName: " + persona }

func documents(parts ...string) string { return strings.Join(parts, "\n---\n") }
