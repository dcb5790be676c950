package rdma

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// mtu is the maximum verbs packet size, in bytes, on links with an MTU of 1500.
const mtu = "1024"

// ofLinks is an expression that selects the links by name.
const ofLinks = `device.attributes["dra.networking"].ifName in ["left0", "right0"]`

// exposeLinks creates a policy that offers the links left0 and right0 as a whole, regardless of their type.
func (c *cluster) exposeLinks() {
	c.Helper()
	c.apply(`
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: links}
spec:
  priority: 200
  selector: {cel: '` + ofLinks + `'}
  action: expose
  exposure:
    allowMultipleAllocations: false
    supportedCNIPlugins: [{name: netdev, exclusive: true}]
`)
}

// In both modes, pods get virtual links with their own RDMA devices and exchange data. The links are the two ends of a
// veth pair, or two macvlans on the same port.
func TestClusterLinksExchangeData(t *testing.T) {
	for name, add := range map[string]func(*bench){
		"veth": func(b *bench) {
			b.AddLink(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "left0"}, PeerName: "right0"})
			b.must(netlink.LinkSetUp(b.LinkByName("right0")))
		},
		"macvlan": func(b *bench) {
			b.AddLink(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "below"}})
			for _, link := range []string{"left0", "right0"} {
				b.AddLink(&netlink.Macvlan{Mode: netlink.MACVLAN_MODE_BRIDGE, LinkAttrs: netlink.LinkAttrs{Name: link,
					ParentIndex: b.LinkByName("below").Attrs().Index}})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, "")
			c.needsLab()
			add(c.bench)
			for _, link := range []string{"left", "right"} {
				c.machine().addDevice(link, link+"0")
			}
			t.Cleanup(func() { c.removeDevices("left", "right") })
			c.exposeLinks()
			c.topology(name, "netdev", ofLinks, "")
			c.exchange(c.peers(name, "left", "right"))
			c.goes(name+"0", name+"1")
			c.onMachine("left", "right")
			c.hasLinks("left0", "right0")
		})
	}
}

// removeDevices removes RDMA devices from the machine.
func (b *bench) removeDevices(names ...string) {
	b.Helper()
	present := b.machine().devices()
	for _, name := range names {
		if slices.Contains(present, name) {
			b.must(netlink.RdmaLinkDel(name))
		}
	}
}

// peer is a pod that exchanges data with another pod, together with its end of the connection.
type peer struct {
	*end
	pod string
}

// peers creates two pods with claims from a template. Each pod gets one of the given RDMA devices.
func (c *cluster) peers(template string, devices ...string) (peers []*peer) {
	c.Helper()
	for i := range 2 {
		name := fmt.Sprintf("%s%d", template, i)
		place := c.pod(name, template)
		p := &peer{pod: name, end: &end{place: place, address: place.addressOfPod()}}
		if p.address == "" {
			c.Fatalf("pod %s has no IPv4 address on net1", name)
		}
		nodes, err := c.execute(context.Background(), name, "/usr/bin/find", "/dev/infiniband", "-type", "c")
		c.must(err)
		for _, device := range devices {
			if slices.Contains(strings.Fields(nodes), c.node(device)) {
				p.device = device
			}
		}
		if p.device == "" || len(strings.Fields(nodes)) != 2 {
			c.Fatalf("pod %s has device nodes %q, want rdma_cm and the node of one of %q", name, nodes, devices)
		}
		peers = append(peers, p)
	}
	if peers[0].device == peers[1].device {
		c.Fatalf("both pods have device %s, want different devices", peers[0].device)
	}
	return peers
}

// exchange exchanges data between the two pods with each of the programs.
func (c *cluster) exchange(peers []*peer) {
	c.Helper()
	server, asking := peers[0], peers[1]
	gids := []string{server.gid(), asking.gid()} // rdma_cm also uses the GID to find the device
	address := []string{"-a", server.address, "-C", "3"}
	c.talks(server.pod, asking.pod, append([]string{"/usr/bin/rping", "-s"}, address...),
		append([]string{"/usr/bin/rping", "-c"}, address...))
	for _, program := range [][]string{
		{"/usr/bin/ibv_rc_pingpong", "-n", "20", "-g"},
		{"/usr/bin/ib_send_bw", "-n", "20", "-s", "4096", "-m", mtu, "-F", "-x"},
	} {
		c.talks(server.pod, asking.pod, append(slices.Clone(program), gids[0], "-d", server.device),
			append(slices.Clone(program), gids[1], "-d", asking.device, server.address))
	}
}
