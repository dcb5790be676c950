package rdma

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	testbench "github.com/dra-networking/dra-network-driver/e2e/internal/bench"
	"github.com/dra-networking/dra-network-driver/e2e/internal/kubenode"
)

// clusterPatience is the time limit for operations that involve the kubelet and containerd.
const clusterPatience = 5 * time.Minute

// cluster represents the machine as a Kubernetes node with the driver.
type cluster struct {
	*bench
	*kubenode.Node
}

func newCluster(t *testing.T, mode string) *cluster {
	t.Helper()
	node := kubenode.Join(t, clusterPatience, "use make rdma-test")
	return &cluster{bench: newBench(t, mode), Node: node}
}

// kubectl runs kubectl and returns its output. A call takes seconds if all code is emulated, which is why apply does
// not use it.
func (c *cluster) kubectl(args ...string) string {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), clusterPatience)
	defer cancel()
	output, err := exec.CommandContext(ctx, "kubectl", args...).CombinedOutput()
	if err != nil {
		c.Errorf("kubectl %q: %v: %s", args, err, output)
	}
	return string(output)
}

// until repeats a check until it returns nil.
func (c *cluster) until(what string, condition func(context.Context) error) {
	c.Helper()
	c.Until(what, condition)
}

// apply applies YAML documents in the namespace "default", and deletes the objects at the end of the test.
func (c *cluster) apply(documents string) {
	c.Helper()
	c.Apply(documents)
}

// pod creates a pod with a claim from a template, waits until the pod is Ready, and returns its network namespace. The
// pod's container can run the machine's programs, such as /usr/bin/rping.
func (c *cluster) pod(name, template string) *place {
	c.Helper()
	start := time.Now()
	c.podObject(name, template, "exec /bin/sleep 86400")
	c.Ready(name)
	p := c.inside(name)
	c.Logf("pod %s was Ready after %s", name, time.Since(start).Round(time.Second))
	return p
}

// inside returns the network namespace of a running pod.
func (c *cluster) inside(name string) *place {
	c.Helper()
	p := &place{c.bench, c.PodAt("")}
	c.until("process of pod "+name, func(context.Context) error {
		dir, err := c.Process(name)
		p.Path = filepath.Join(dir, "ns/net")
		return err
	})
	return p
}

// podObject creates a pod whose container runs a shell script once. It does not wait for the pod.
func (c *cluster) podObject(name, template, script string) {
	c.Helper()
	c.apply(c.barePod(name, template, script) + `
    volumeMounts:
    - {name: programs, mountPath: /usr, readOnly: true}
    - {name: libraries, mountPath: /lib, readOnly: true}
    - {name: loader, mountPath: /lib64, readOnly: true}
    - {name: providers, mountPath: /etc/libibverbs.d, readOnly: true}
  volumes:
  - {name: programs, hostPath: {path: /usr}}
  - {name: libraries, hostPath: {path: /usr/lib}}
  - {name: loader, hostPath: {path: /usr/lib64}}
  - {name: providers, hostPath: {path: /etc/libibverbs.d}}
`)
}

// barePod returns the manifest for a pod without the machine's programs. The manifest ends with the container, so that
// callers can append fields to it. The cluster has no DNS. With a DNS policy that needs it, the kubelet would create an
// event each time it syncs the pod.
func (c *cluster) barePod(name, template, script string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  dnsPolicy: Default
  terminationGracePeriodSeconds: 0
  restartPolicy: Never
  automountServiceAccountToken: false
  resourceClaims: [{name: net, resourceClaimTemplateName: %[2]s}]
  containers:
  - name: main
    image: localhost/toolbox:e2e
    imagePullPolicy: Never
    command: [/bin/sh, -c, %[5]q]
    env: [{name: %[3]s, value: %[4]s}]
    resources: {claims: [{name: net}]}`, name, template, kubenode.Observed, c.Mark(name), script)
}

// On a node with RDMA, a virtual function is attached to a pod in the same way as on any other node, and is restored
// afterwards.
func TestClusterPodWithFunction(t *testing.T) {
	c := newCluster(t, "")
	function := c.functions(1)[0]
	name := c.LinkOf(function).Attrs().Name
	c.apply(`
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: functions}
spec:
  priority: 200
  selector: {cel: 'device.attributes["dra.networking"].type == "vf"'}
  action: expose
  exposure:
    allowMultipleAllocations: false
    supportedCNIPlugins: [{name: host-device, exclusive: true}]
---
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: function}
spec:
  steps:
  - name: nic
    type: host-device
    selector: {cel: 'device.attributes["dra.networking"].type == "vf"'}
    config: {ipam: {type: host-local, subnet: 10.8.0.0/24}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: function}
spec:
  spec:
    devices:
      requests:
      - {name: nic, exactly: {deviceClassName: function-nic}}
`)
	pod := c.pod("user", "function")
	var address string
	pod.WithLink("net1", func(link netlink.Link) error {
		address = link.Attrs().ParentDev
		return nil
	})
	if address != function {
		c.Errorf("net1 of the pod belongs to function %q, want %s", address, function)
	}
	if text := c.kubectl("exec", "user", "--", "/usr/bin/ibv_devices"); !strings.Contains(text, "node GUID") {
		c.Errorf("ibv_devices in the pod printed %q, want a device", text)
	}
	c.goes("user")
	c.eventually("function at home", func() error {
		if links, err := os.ReadDir(testbench.SysPCI(function, "net")); err != nil || len(links) != 1 {
			return errors.Join(err, fmt.Errorf("the function has the links %v", links))
		}
		return nil
	})
	if diff := cmp.Diff(name, c.LinkOf(function).Attrs().Name); diff != "" {
		c.Errorf("name of the function's link (-want +have):\n%s", diff)
	}
}
