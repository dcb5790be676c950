package rdma

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// mtu is the maximum of a packet of verbs on links of 1500 bytes.
const mtu = "1024"

// ofLinks selects links by name.
const ofLinks = `device.attributes["dra.networking"].ifName in ["left0", "right0"]`

// exposeLinks offers the links left0 and right0 as a whole, whatever they are.
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

// Links that are no hardware go to pods with RDMA devices of their own, in both modes: both ends of a veth, and two
// macvlans on one port. The pods exchange data.
func TestClusterLinksExchangeData(t *testing.T) {
	for name, add := range map[string]func(*bench){
		"veth": func(b *bench) {
			b.add(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "left0"}, PeerName: "right0"})
			b.must(netlink.LinkSetUp(b.link("right0")))
		},
		"macvlan": func(b *bench) {
			b.add(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "below"}})
			for _, link := range []string{"left0", "right0"} {
				b.add(&netlink.Macvlan{Mode: netlink.MACVLAN_MODE_BRIDGE, LinkAttrs: netlink.LinkAttrs{Name: link,
					ParentIndex: b.link("below").Attrs().Index}})
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

// removeDevices removes RDMA devices of the machine that are there.
func (b *bench) removeDevices(names ...string) {
	b.Helper()
	present := b.machine().devices()
	for _, name := range names {
		if slices.Contains(present, name) {
			b.must(netlink.RdmaLinkDel(name))
		}
	}
}

// peer is a pod that talks: the end that it is on the network, and its name.
type peer struct {
	*end
	pod string
}

// peers makes two pods with a claim from a template, each of which gets one of these RDMA devices.
func (c *cluster) peers(template string, devices ...string) (peers []*peer) {
	c.Helper()
	for i := range 2 {
		name := fmt.Sprintf("%s%d", template, i)
		place := c.pod(name, template)
		p := &peer{pod: name, end: &end{place: place, address: place.addressOfPod()}}
		if p.address == "" {
			c.Fatalf("pod %s has no address", name)
		}
		nodes, err := c.execute(context.Background(), name, "/usr/bin/find", "/dev/infiniband", "-type", "c")
		c.must(err)
		for _, device := range devices {
			if slices.Contains(strings.Fields(nodes), c.node(device)) {
				p.device = device
			}
		}
		if p.device == "" || len(strings.Fields(nodes)) != 2 {
			c.Fatalf("pod %s has %q, want rdma_cm and that of one of %q", name, nodes, devices)
		}
		peers = append(peers, p)
	}
	if peers[0].device == peers[1].device {
		c.Fatalf("both pods have the device %s", peers[0].device)
	}
	return peers
}

// exchange lets the second pod talk to the first in every way.
func (c *cluster) exchange(peers []*peer) {
	c.Helper()
	server, asking := peers[0], peers[1]
	gids := []string{server.gid(), asking.gid()} // rdma_cm, too, finds the device by it
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

// Two macvlan pods share a port and its RDMA device, in shared mode. What Soft RoCE can do there is what it can do on
// the port itself: it takes packets for the port's own addresses only, not for those of interfaces on it, which a card
// does. So pods exchange data by the port's GID, and their own, which are in the same table, lead nowhere.
func TestClusterSharedPortData(t *testing.T) {
	c := newCluster(t, shared)
	c.add(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "port"}})
	c.machine().addDevice("rxe9", "port")
	c.Cleanup(func() { c.removeDevices("rxe9") })
	c.expose()
	c.topology("data", "macvlan", `device.attributes["dra.networking"].ifName == "port"`, "")
	var ends []*end
	for _, name := range []string{"one", "two"} {
		place := c.pod(name, "data")
		ends = append(ends, &end{place: place, device: "rxe9", address: place.addressOfPod()})
	}
	ofPort := []string{"-d", "rxe9", "-n", "20"}
	for _, program := range [][]string{{"/usr/bin/ibv_rc_pingpong", "-g", "0"}, {"/usr/bin/ib_send_bw", "-F", "-x", "0"}} {
		serve := slices.Concat(program, ofPort)
		c.talks("one", "two", serve, append(slices.Clone(serve), ends[0].address))
	}
	c.silent("one", "two", ends)
}

// silent expects that two pods find each other by TCP, and that nothing comes from one to the other by their own GIDs.
func (c *cluster) silent(server, asking string, ends []*end) {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), clusterPatience)
	defer cancel()
	command := func(e *end) []string {
		return []string{"/usr/bin/timeout", "20", "/usr/bin/ibv_rc_pingpong", "-d", e.device, "-g", e.gid()}
	}
	serve, ask := command(ends[0]), append(command(ends[1]), ends[0].address)
	serve[1] = "60"
	type result struct {
		output string
		err    error
	}
	ended := make(chan result, 1)
	go func() {
		output, err := c.execute(ctx, server, serve...)
		ended <- result{output, err}
	}()
	for {
		output, err := c.execute(ctx, asking, ask...)
		if err == nil {
			c.Fatalf("%q works now: say so in docs/limits.md: %s", ask, output)
		}
		if strings.Contains(output, "exit code 124") { // it has met the server by TCP, and waited until timeout ended it
			c.Logf("between GIDs of macvlans on the port: %s", output)
			return
		}
		select {
		case early := <-ended:
			c.Fatalf("%q: %v: %s\n%q: %v: %s", ask, err, output, serve, early.err, early.output)
		case <-ctx.Done():
			c.Fatal(errors.Join(ctx.Err(), err), output)
		case <-time.After(time.Second):
		}
	}
}
