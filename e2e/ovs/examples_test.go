package ovs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/dra-networking/dra-network-driver/e2e/internal/kubenode"
	"github.com/dra-networking/dra-network-driver/e2e/internal/nad"
)

const (
	// examples is the directory with the shipped examples, which "make ovs-ovnkube" shares with the machine.
	examples = "/share"
	// pf2 is a NIC that is not connected to Open vSwitch.
	pf2 = "0000:42:00.0"
)

// part runs a subtest, and deletes its objects and pods at the end.
func (c *ovnCluster) part(name string, do func(*ovnCluster)) {
	c.Helper()
	c.Run(name, func(t *testing.T) {
		part := *c
		part.bench, part.Node = &bench{c.With(t)}, c.Part(t, c.Namespace)
		do(&part)
		part.RemoveAll()
	})
}

// apply applies a shipped example. names lists pairs of an old and a new name, which are replaced in the example.
func (c *ovnCluster) apply(example string, names ...string) {
	c.Helper()
	text, err := os.ReadFile(filepath.Join(examples, example+".yaml"))
	c.must(err)
	for document := range strings.SplitSeq(strings.NewReplacer(names...).Replace(string(text)), "\n---\n") {
		c.Apply(observed(c.Namespace, document))
	}
}

// observed adds the environment variable that identifies a pod's processes to a pod in an example.
func observed(namespace, document string) string {
	if !strings.Contains(document, "\nkind: Pod\n") {
		return document
	}
	_, name, _ := strings.Cut(document, "\n  name: ")
	name, _, _ = strings.Cut(name, "\n")
	const command = "\n    command:"
	env := fmt.Sprintf("\n    env: [{name: %s, value: %s/%s}]", kubenode.Observed, namespace, name)
	return strings.Replace(document, command, env+command, 1)
}

// offers waits until exactly the given devices are published.
func (c *ovnCluster) offers(want ...string) {
	c.Helper()
	slices.Sort(want)
	c.Until("devices that are to be offered", func(ctx context.Context) error {
		devices, err := c.Offered(ctx)
		var have []string
		for name := range devices {
			have = append(have, name)
		}
		slices.Sort(have)
		if err == nil && !slices.Equal(have, want) {
			err = fmt.Errorf("devices are %q, want %q", have, want)
		}
		return err
	})
}

// All devices are offered except devices that the cluster uses: Open vSwitch bridges and their ports, and links that
// the node uses.
func (c *ovnCluster) example8() {
	c.apply("8-all-but-the-cluster")
	c.offers(c.uplink(pf2))
	c.Ready("any-link")
	c.address("any-link", "10.114.0.", "net1")
}

// Several macvlans share a NIC that is not connected to Open vSwitch.
func (c *ovnCluster) example3() {
	c.Exec("ip", "link", "set", c.uplink(pf2), "up")
	c.apply("3-macvlan-parent", "enp3s0f1", c.uplink(pf2))
	c.Ready("uplink-macvlan-1", "uplink-macvlan-2")
	c.reaches("uplink-macvlan-1", c.address("uplink-macvlan-2", "10.104.0.", "net1"))
}

// One virtual function is a port on a bridge that pods use, and another is moved into a pod.
func (c *ovnCluster) example7() {
	c.SetVFs(pf2, 2)
	c.Cleanup(func() { c.SetVFs(pf2, 0) })
	port := c.uplink(c.VF(pf2, 0))
	c.AddLink(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br-sriov-data"}})
	c.must(netlink.LinkSetMaster(c.LinkByName(port), c.LinkByName("br-sriov-data")))
	c.apply("7-bridge-port-or-function", "enp3s0f0", c.uplink(pf2))
	c.offers("br-sriov-data", c.uplink(pf2)+"v1")
	c.Ready("data-port", "free-vf")
	c.address("data-port", "10.112.0.", "net1")
	c.address("free-vf", "10.113.0.", "net1")
}

// Pods use a localnet, as in the example. Accelerated networks would require representors for virtual functions, which
// igb does not support.
func (c *ovnCluster) example9() {
	c.Apply(nad.Network(c.Namespace, "tenant-localnet", "", `{"cniVersion": "0.4.0", "type": "ovn-k8s-cni-overlay",
    "name": "tenant-localnet", "netAttachDefName": "default/tenant-localnet", "topology": "localnet",
    "physicalNetworkName": "localnet1", "subnets": "10.81.0.0/24"}`))
	const fast = "      - name: fast\n        exactly: {deviceClassName: ovnk-accelerated-net}\n"
	c.apply("9-ovn-kubernetes", "enp6s0f0", c.uplink(pf0), "enp4s0f0", "none", fast, "", ",default/tenant-fast", "")
	c.Ready("ovnk")
	c.address("ovnk", "10.81.0.", "mtu 1400")
}
