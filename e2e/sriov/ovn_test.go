package sriov

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	testbench "github.com/dra-networking/dra-network-driver/e2e/internal/bench"
	"github.com/dra-networking/dra-network-driver/e2e/internal/nad"
	"github.com/dra-networking/dra-network-driver/e2e/internal/ovnkube"
)

// ovnKubernetes runs the OVN-Kubernetes test double on this machine until the end of the test.
func (c *cluster) ovnKubernetes() {
	c.Helper()
	c.Apply(nad.Definition)
	nodes, err := c.Client.CoreV1().Nodes().List(c.Context(), metav1.ListOptions{})
	c.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- ovnkube.Run(ctx, os.Getenv("KUBECONFIG"), nodes.Items[0].Name, 0, ovnkube.RealSweep) }()
	c.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			c.Error(err)
		}
	})
}

// ovnPort is the test double's record of the port for a virtual function.
type ovnPort struct {
	Network string `json:"k8s.ovn.org/network"`
	NADKey  string `json:"k8s.ovn.org/nad"`
	Netdev  string `json:"vf-netdev-name"`
}

// Virtual functions are attached to an OVN-Kubernetes network, as in deploy/samples. The driver passes each function's
// PCI address to the plugin. The plugin changes the MAC address and the MTU, and records the function's name on the
// host. The driver restores everything that the plugin does not restore.
func (c *cluster) acceleratesNetworks() {
	c.ovnKubernetes()
	c.Apply(fmt.Sprintf(`
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: tenant, namespace: %[1]s}
spec:
  config: '{"type": "ovn-k8s-cni-overlay", "name": "tenant-fast", "netAttachDefName": "%[1]s/tenant",
    "topology": "layer2", "role": "secondary", "subnets": "10.82.0.0/24"}'
`, c.Namespace))
	c.topology("fast", c.named(`
- name: net
  type: ovn-k8s-cni-overlay
  selector: {cel: 'device.attributes["dra.networking"].type == "vf" && device.attributes["dra.networking"].pfName == "PF1"'}
  config: {netAttachDefName: "{{ pod.namespace }}/tenant"}`), "net")
	var want []ovnPort
	for i := range 4 {
		want = append(want, ovnPort{Network: "tenant-fast", NADKey: c.Namespace + "/tenant",
			Netdev: c.LinkOf(c.VF(pf1, i)).Attrs().Name})
	}
	c.annotations = "{k8s.v1.cni.cncf.io/networks: tenant}"
	c.create("fast", "a", "b")
	c.Ready("a", "b")
	for _, name := range []string{"a", "b"} {
		c.attached(name)
		index := c.index(name, 0)
		address := c.VF(pf1, index)
		if _, err := testbench.FindLink(address); err == nil {
			c.Errorf("the function of pod %s is on the host, want it in the pod", name)
		}
		if diff := cmp.Diff(want[index], c.ovnPortOf(address)); diff != "" {
			c.Errorf("the plugin's record of the function of pod %s (-want +have):\n%s", name, diff)
		}
		if diff := cmp.Diff([]string{"net1 device mtu 1400 up true"}, c.inside(name).Links()); diff != "" {
			c.Errorf("links of pod %s (-want +have):\n%s", name, diff)
		}
		c.ovnAddress(c.inside(name), index)
	}
	a, b := c.inside("a"), c.inside("b")
	c.Logf("first message after %s", a.Reaches(b, ipv4(b, "net1")))
	c.RemoveAll()
	c.Until("switch without ports", func(context.Context) error {
		if left := c.glob(filepath.Join(ovnkube.State, "ports", "*")); len(left) > 0 {
			return fmt.Errorf("the double still has the ports %q", left)
		}
		return nil
	})
	c.published(publishedOfAll(4, 200))
}

// ovnPortOf returns the test double's record of the port for a virtual function.
func (c *cluster) ovnPortOf(address string) (port ovnPort) {
	c.Helper()
	data, err := os.ReadFile(filepath.Join(ovnkube.State, "ports", ovnkube.Representor(address)))
	c.must(errors.Join(err, json.Unmarshal(data, &port)))
	return port
}

// ovnAddress checks that the MAC address of a pod's virtual function is derived from its IP address, and that the
// physical function reports the same MAC address.
func (c *cluster) ovnAddress(p *pod, index int) {
	c.Helper()
	address := ipv4(p, "net1")
	want := append(net.HardwareAddr{0x0a, 0x58}, net.ParseIP(address).To4()...).String()
	var have string
	p.WithLink("net1", func(link netlink.Link) error {
		have = link.Attrs().HardwareAddr.String()
		return nil
	})
	if nic := c.info(pf1, index).Mac.String(); !strings.HasPrefix(address, "10.82.0.") || have != want ||
		nic != want {
		c.Errorf("%s has %s and %s, and its physical function reports %s; want an IP in 10.82.0.0/24 and MAC %s",
			p.Path, address, have, nic, want)
	}
}
