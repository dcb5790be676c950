package rdma

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
)

// expose creates policies that offer virtual functions for exclusive use, and the link "port" for use by several pods.
func (c *cluster) expose() {
	c.Helper()
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
    supportedCNIPlugins: [{name: netdev, exclusive: true}]
---
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: port}
spec:
  priority: 200
  selector: {cel: 'device.attributes["dra.networking"].ifName == "port"'}
  action: expose
  exposure:
    allowMultipleAllocations: true
    capacity:
      macvlans: {value: "4", requestPolicy: {default: "1"}}
    supportedCNIPlugins: [{name: macvlan}]
`)
}

// topology creates a topology with a single step for an RDMA device, and a claim template with the same name. extra is
// YAML with additional fields for the step.
func (c *cluster) topology(name, cniType, selector, extra string) {
	c.Helper()
	c.apply(fmt.Sprintf(`
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: %[1]s}
spec:
  steps:
  - name: nic
    type: %[2]s
    selector: {cel: '%[3]s && device.attributes["dra.networking"].rdma'}
    rdma: {}%[4]s
    config: {ipam: {type: host-local, subnet: 10.8.0.0/24}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: %[1]s}
spec:
  spec:
    devices:
      requests:
      - {name: nic, exactly: {deviceClassName: %[1]s-nic}}
`, name, cniType, selector, extra))
}

const ofFunctions = `device.attributes["dra.networking"].type == "vf"`

// execute runs one of the machine's programs in a pod's container.
func (c *cluster) execute(ctx context.Context, pod string, args ...string) (string, error) {
	command := append([]string{"exec", pod, "--"}, args...)
	output, err := exec.CommandContext(ctx, "kubectl", command...).CombinedOutput()
	return string(output), err
}

// outcome is the output of a program in a pod and the error from running it.
type outcome struct {
	output string
	err    error
}

// begin is like execute, but runs the program in the background.
func (c *cluster) begin(ctx context.Context, pod string, args []string) <-chan outcome {
	ended := make(chan outcome, 1)
	go func() {
		output, err := c.execute(ctx, pod, args...)
		ended <- outcome{output, err}
	}()
	return ended
}

// addressOfPod returns the IPv4 address of net1 in the pod.
func (p *place) addressOfPod() (address string) {
	p.Helper()
	p.Inside(func() error {
		link, err := netlink.LinkByName("net1")
		if err != nil {
			return err
		}
		addresses, err := netlink.AddrList(link, netlink.FAMILY_V4)
		if err == nil && len(addresses) > 0 {
			address = addresses[0].IP.String()
		}
		return err
	})
	return address
}

// talks starts a server in one pod, and retries a client in another pod until the server is listening. It restarts the
// server if the runtime was too busy to start it.
func (c *cluster) talks(server, asking string, serve, clientArgs []string) {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), clusterPatience)
	defer cancel()
	ended := c.begin(ctx, server, serve)
	for {
		output, err := c.execute(ctx, asking, clientArgs...)
		if err == nil {
			break
		}
		select {
		case early := <-ended:
			if !strings.Contains(early.output, "failed to exec in container") {
				c.Fatalf("%q: %v: %s\n%q: %v: %s", clientArgs, err, output, serve, early.err, early.output)
			}
			ended = c.begin(ctx, server, serve)
		case <-ctx.Done():
			last := <-ended // the server exits when the context is canceled
			c.Fatalf("%q did not succeed: %v: %s\n%q: %v: %s", clientArgs, err, output, serve, last.err, last.output)
		case <-time.After(time.Second):
		}
	}
	if last := <-ended; last.err != nil {
		c.Fatalf("server %q failed: %v: %s", serve, last.err, last.output)
	}
}

// goes deletes pods and waits until they no longer exist.
func (c *cluster) goes(names ...string) {
	c.Helper()
	c.Remove(names...)
	c.Gone(names...)
}

// Pods whose claims are for a topology with RDMA can see and open exactly their own device, and exchange data through
// it. After the pods have terminated, the devices are on the machine under their original names.
func TestClusterPodsExchangeData(t *testing.T) {
	c := newCluster(t, "")
	c.needsLab()
	c.rdmaFunctions(2)
	before := c.machine().devices()
	c.expose()
	c.topology("rdma", "netdev", ofFunctions, "")
	c.exchange(c.peers("rdma", "rxe0", "rxe1"))
	c.goes("rdma0", "rdma1")
	c.onMachine(before...)
}

// onMachine waits until the machine has exactly the given RDMA devices. Devices return some time after the Pod objects
// have been deleted.
func (c *cluster) onMachine(devices ...string) {
	c.Helper()
	c.until("RDMA devices on the machine", func(context.Context) error {
		if diff := cmp.Diff(devices, c.machine().devices()); diff != "" {
			return fmt.Errorf("(-want +have):\n%s", diff)
		}
		return nil
	})
}

// hasLinks waits until the machine has the given links, which return after their RDMA devices.
func (c *cluster) hasLinks(links ...string) {
	c.Helper()
	c.until("links on the machine", func(context.Context) error {
		for _, link := range links {
			if _, err := netlink.LinkByName(link); err != nil {
				return fmt.Errorf("%s: %w", link, err)
			}
		}
		return nil
	})
}

// The topology limits how much memory a process may lock. Regardless of the user that it runs as, an application cannot
// register its memory if the limit is too low, and can if the limit is sufficient.
func TestClusterLockedMemory(t *testing.T) {
	c := newCluster(t, "")
	c.needsLab()
	c.rdmaFunctions(2)
	c.expose()
	c.topology("little", "netdev", ofFunctions, "\n    limits: {lockedMemory: 64Ki}")
	c.topology("much", "netdev", ofFunctions, "\n    limits: {lockedMemory: 1Gi}")
	for template, want := range map[string]struct{ limit, text string }{
		"little": {"65536", "Couldn't register MR"}, "much": {"1073741824", "exit code 124"},
	} {
		c.pod(template, template)
		output, err := c.execute(context.Background(), template, "/usr/bin/prlimit", "--memlock",
			"--noheadings", "--raw",
			"--output", "SOFT,HARD")
		c.must(err)
		if fields := strings.Fields(output); !slices.Equal(fields, []string{want.limit, want.limit}) {
			t.Errorf("pod %s has locked memory limits %q, want %s", template, fields, want.limit)
		}
		// A server that was able to register its memory waits for a peer until the timeout program kills it, and the
		// exit status is 124.
		output, err = c.execute(context.Background(), template, "/usr/bin/setpriv", "--reuid=1000", "--regid=1000",
			"--clear-groups", "/usr/bin/timeout", "20", "/usr/bin/ibv_rc_pingpong", "-g", "1", "-s", "1048576")
		if err == nil || !strings.Contains(output, want.text) {
			t.Errorf("ibv_rc_pingpong in pod %s returned %v: %s, want %q", template, err, output, want.text)
		}
		c.goes(template)
		c.onMachine("rxe0", "rxe1")
	}
}

// The kernel rejects requests for more RDMA objects on a device than the topology allows, even if the device has been
// renamed, and even after it has left the pod and returned.
func TestClusterRDMALimits(t *testing.T) {
	c := newCluster(t, exclusive)
	c.needsLab()
	c.rdmaFunctions(1)
	c.expose()
	c.topology("limited", "netdev", ofFunctions, "\n    limits: {rdmaHandles: 1, rdmaObjects: 2}")
	pod := c.pod("limited", "limited")
	c.limited("limited", "rxe0")
	pod.rename("rxe0", "mine")
	c.limited("limited", "mine")
	c.must(pod.moveDevice("mine", c.machine()))
	c.machine().sees("mine")
	c.must(c.machine().moveDevice("mine", pod))
	c.limited("limited", "mine")
	c.goes("limited")
	c.onMachine("rxe0")
}
