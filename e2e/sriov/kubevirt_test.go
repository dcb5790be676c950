package sriov

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/e2e/internal/kubenode"
)

// kubeVirtReader is the program from e2e/kubevirt, which "make sriov-pods" builds into the directory that is shared
// with the machine.
const kubeVirtReader = "/share/kubevirt-reader"

// isReadByKubeVirt checks that KubeVirt's own code finds the PCI addresses of virtual functions in the files in
// containers, both for claims created from templates and for claims created by users.
func (c *cluster) isReadByKubeVirt() {
	if _, err := os.Stat(kubeVirtReader); err != nil {
		c.Skipf("needs %s; use make sriov-pods: %v", kubeVirtReader, err)
	}
	c.application("machine", "PF0")
	c.createWith(opener, "machine", "of-template")
	c.Apply(fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: function, namespace: %[1]s}
spec:
  devices:
    requests: [{name: r0, exactly: {deviceClassName: machine-nic}}]
---
apiVersion: v1
kind: Pod
metadata: {name: by-name}
spec:
  terminationGracePeriodSeconds: 0
  automountServiceAccountToken: false
  resourceClaims: [{name: net, resourceClaimName: function}]
  containers:
  - name: main
    image: localhost/toolbox:e2e
    imagePullPolicy: Never
    command: [sh, -c, %[2]q]
    env: [{name: %[3]s, value: %[4]s}]
    resources: {claims: [{name: net}]}
`, c.Namespace, opener, kubenode.Observed, c.Mark("by-name")))
	c.Ready("of-template", "by-name")
	seen := map[string]string{}
	for pod, claim := range map[string]string{"of-template": "", "by-name": "function"} {
		output, err := exec.Command(kubeVirtReader, "-root", filepath.Join(c.process(pod), "root"), "-claim", claim,
			"net", "r0").CombinedOutput()
		lines := strings.Split(strings.TrimSpace(string(output)), "\n") // the program prints log lines first
		address := lines[len(lines)-1]
		if err != nil {
			c.Errorf("KubeVirt's code failed in pod %s: %v: %s", pod, err, output)
			continue
		}
		if diff := cmp.Diff([]string{c.group(address), "/dev/vfio/vfio"}, c.opened(pod)); diff != "" {
			c.Errorf("pod %s does not have the function %s that KubeVirt's code found (-want +have):\n%s", pod, address,
				diff)
		}
		if other := seen[address]; other != "" {
			c.Errorf("KubeVirt's code found the same address, %s, in pods %s and %s", address, other, pod)
		}
		seen[address] = pod
	}
}
