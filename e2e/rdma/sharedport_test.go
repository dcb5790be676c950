package rdma

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
)

// Several pods share a port through macvlan. In exclusive mode, events for the pods report why this is not possible. In
// shared mode, each pod gets the port's RDMA device, and the pods exchange data through the port's GID. Their own GIDs,
// which are in the same table, do not work with Soft RoCE: its socket is in the port's network namespace, but packets
// for a macvlan's address go to the pod's namespace.
func TestClusterSharedPort(t *testing.T) {
	c := newCluster(t, "")
	c.AddLink(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "port"}})
	c.machine().addDevice("rxe9", "port")
	c.Cleanup(func() { c.removeDevices("rxe9") })
	mode, err := netlink.RdmaSystemGetNetnsMode()
	c.must(err)
	c.expose()
	c.topology("shared", "macvlan", `device.attributes["dra.networking"].ifName == "port"`, "")
	if mode == exclusive {
		c.podObject("refused", "shared", "exec /bin/sleep 86400")
		c.Event("refused", "rdma system set netns shared")
		return
	}
	var ends []*end
	for _, name := range []string{"one", "two"} {
		place := c.pod(name, "shared")
		ends = append(ends, &end{place: place, device: "rxe9", address: place.addressOfPod()})
		output, err := c.execute(context.Background(), name, "/usr/bin/find", "/dev/infiniband", "-type", "c")
		c.must(err)
		names := strings.Fields(output)
		slices.Sort(names)
		if diff := cmp.Diff([]string{"/dev/infiniband/rdma_cm", c.node("rxe9")}, names); diff != "" {
			t.Errorf("device nodes of pod %s (-want +have):\n%s", name, diff)
		}
	}
	for _, program := range [][]string{
		{"/usr/bin/ibv_rc_pingpong", "-d", "rxe9", "-n", "20", "-g", "0"},
		{"/usr/bin/ib_send_bw", "-d", "rxe9", "-n", "20", "-s", "4096", "-m", mtu, "-F", "-x", "0"},
	} {
		c.talks("one", "two", program, append(slices.Clone(program), ends[0].address))
	}
	c.silent("one", "two", ends)
}

// The policies allow pods to use a port's RDMA device without its interface, which stays on the host. The pods exchange
// data through the device, and their only interface is the one for the cluster network.
func TestClusterPortWithoutInterface(t *testing.T) {
	c := newCluster(t, shared)
	c.AddLink(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "port"}})
	c.machine().addDevice("rxe9", "port")
	c.Cleanup(func() { c.removeDevices("rxe9") })
	c.apply(`
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: files}
spec:
  priority: 300
  selector: {cel: 'device.attributes["dra.networking"].ifName == "port"'}
  action: expose
  exposure:
    allowMultipleAllocations: true
    capacity: {pods: {value: "4", requestPolicy: {default: "1"}}}
    supportedCNIPlugins: [{name: device-only}]
---
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: files}
spec:
  steps:
  - name: nic
    type: device-only
    selector: {cel: 'device.attributes["dra.networking"].ifName == "port"'}
    rdma: {}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: files}
spec:
  spec:
    devices:
      requests:
      - {name: nic, exactly: {deviceClassName: files-nic}}
`)
	server := c.pod("server", "files")
	client := c.pod("client", "files")
	for name, place := range map[string]*place{"server": server, "client": client} {
		output, err := c.execute(context.Background(), name, "/usr/bin/find", "/dev/infiniband", "-type", "c")
		c.must(err)
		nodes := strings.Fields(output)
		slices.Sort(nodes)
		if diff := cmp.Diff([]string{"/dev/infiniband/rdma_cm", c.node("rxe9")}, nodes); diff != "" {
			t.Errorf("device nodes of pod %s (-want +have):\n%s", name, diff)
		}
		attached := func(link string) bool { return strings.HasPrefix(link, "net1") }
		if links := place.Links(); slices.ContainsFunc(links, attached) {
			t.Errorf("pod %s has interfaces %q, want none from the claim", name, links)
		}
	}
	address, err := c.execute(context.Background(), "server", "/bin/hostname", "-i")
	c.must(err)
	program := []string{"/usr/bin/ibv_rc_pingpong", "-d", "rxe9", "-n", "20", "-g", "0"}
	c.talks("server", "client", program, append(slices.Clone(program), strings.TrimSpace(address)))
	c.goes("server", "client")
	c.onMachine("rxe9")
	if port := c.LinkByName("port"); port.Attrs().Flags&net.FlagUp == 0 {
		t.Error("the port on the host is down")
	}
}

// silent checks that two pods can connect over TCP, but that RDMA messages between their own GIDs do not arrive.
func (c *cluster) silent(server, asking string, ends []*end) {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), clusterPatience)
	defer cancel()
	command := func(e *end) []string {
		return []string{"/usr/bin/timeout", "20", "/usr/bin/stdbuf", "-oL", "/usr/bin/ibv_rc_pingpong", "-d", e.device,
			"-g", e.gid()}
	}
	serve, clientArgs := command(ends[0]), append(command(ends[1]), ends[0].address)
	serve[1] = "60"
	ended := c.begin(ctx, server, serve)
	for {
		output, err := c.execute(ctx, asking, clientArgs...)
		if err == nil {
			c.Fatalf("%q now works; update docs/limits.md: %s", clientArgs, output)
		}
		// The client connected to the server over TCP, and then waited for messages until the timeout program killed
		// it.
		if strings.Contains(output, "remote address") && strings.Contains(output, "exit code 124") {
			c.Logf("between GIDs of macvlans on the port: %s", output)
			return
		}
		select {
		case early := <-ended:
			c.Fatalf("%q: %v: %s\n%q: %v: %s", clientArgs, err, output, serve, early.err, early.output)
		case <-ctx.Done():
			c.Fatal(errors.Join(ctx.Err(), err), output)
		case <-time.After(time.Second):
		}
	}
}
