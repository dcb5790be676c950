package sriov

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/e2e/internal/kubenode"
)

// bondForMultus contains the objects of a network function for Multus and the SR-IOV device plugin: a bond of one
// virtual function on each of two NICs. The first argument is the namespace; the others are the names of the NICs.
const bondForMultus = `
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: bond-net, namespace: %[1]s}
spec:
  config: '{"type": "bond", "cniVersion": "0.3.1", "name": "bond-net", "mode": "active-backup", "failOverMac": 1,
    "linksInContainer": true, "miimon": "100", "mtu": 1400, "links": [{"name": "net1"}, {"name": "net2"}],
    "ipam": {"type": "host-local", "subnet": "10.10.0.0/24"}}'
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: sriov-a, namespace: %[1]s, annotations: {k8s.v1.cni.cncf.io/resourceName: intel.com/vf_a}}
spec:
  config: '{"type": "sriov", "cniVersion": "0.3.1", "name": "sriov-a", "vlan": 0, "spoofchk": "off", "trust": "on"}'
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: sriov-b, namespace: %[1]s, annotations: {k8s.v1.cni.cncf.io/resourceName: intel.com/vf_b}}
spec:
  config: '{"type": "sriov", "cniVersion": "0.3.1", "name": "sriov-b", "vlan": 0, "spoofchk": "off", "trust": "on"}'
---
apiVersion: v1
kind: ConfigMap
metadata: {name: sriovdp-config, namespace: kube-system}
data:
  config.json: '{"resourceList": [{"resourceName": "vf_a", "selectors": {"pfNames": ["%[2]s"]}},
    {"resourceName": "vf_b", "selectors": {"pfNames": ["%[3]s"]}}]}'
`

// podForMultus is a pod that uses the networks of bondForMultus. The arguments are its name, the namespace, and the name
// and value of an environment variable.
const podForMultus = `---
apiVersion: v1
kind: Pod
metadata:
  name: %[1]s
  namespace: %[2]s
  annotations:
    k8s.v1.cni.cncf.io/networks: '[{"name": "sriov-a", "interface": "net1"}, {"name": "sriov-b", "interface": "net2"},
      {"name": "bond-net", "interface": "bond0"}]'
spec:
  terminationGracePeriodSeconds: 0
  automountServiceAccountToken: false
  containers:
  - name: main
    image: localhost/toolbox:e2e
    imagePullPolicy: Never
    command: [sleep, "86400"]
    env: [{name: %[3]s, value: %[4]s}]
    resources: {requests: {intel.com/vf_a: "1", intel.com/vf_b: "1"}, limits: {intel.com/vf_a: "1", intel.com/vf_b: "1"}}
`

// The pods of a network function run with the objects that netdra generates from its manifests for Multus and the
// SR-IOV device plugin, without any changes to these objects.
func TestClusterImported(t *testing.T) {
	c := newCluster(t, 2)
	c.part("imported", func(c *cluster) {
		input := fmt.Sprintf(bondForMultus, c.Namespace, c.LinkOf(pf0).Attrs().Name, c.LinkOf(pf1).Attrs().Name)
		for _, name := range []string{"one", "two"} {
			input += fmt.Sprintf(podForMultus, name, c.Namespace, kubenode.Observed, c.Mark(name))
		}
		var report bytes.Buffer
		cmd := exec.Command("netdra", "import", "-f", "-")
		cmd.Stdin, cmd.Stderr = strings.NewReader(input), &report
		made, err := cmd.Output()
		if err != nil {
			c.Fatalf("netdra import: %v\n%s", err, report.String())
		}
		c.Apply(string(made))
		c.Ready("one", "two")
		c.attached("one")
		pods := []*pod{c.inside("one"), c.inside("two")}
		want := []string{"bond0 bond mtu 1400 up true", "net1 device mtu 1400 up true", "net2 device mtu 1400 up true"}
		for _, p := range pods {
			if diff := cmp.Diff(want, p.Links()); diff != "" {
				c.Errorf("links of %s (-want +have):\n%s", p.Path, diff)
			}
		}
		c.Logf("bond0 after %s", pods[0].Reaches(pods[1], ipv4(pods[1], "bond0")))
	})
}
