package rdma

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/e2e/internal/kubenode"
)

// opened is the command for a container that keeps its device open, as an application would.
const opened = `for file in /dev/infiniband/uverbs*; do exec 9<>"$file" || exit 1; done; exec /bin/sleep 86400`

// unload unloads the Soft RoCE module, which also removes the module's RDMA devices in all namespaces. The kernel
// allows this even while an application has a device open (ib_uverbs disassociates it).
func (b *bench) unload() {
	b.Helper()
	b.must(unix.DeleteModule("rdma_rxe", unix.O_NONBLOCK))
}

// load loads the lab's variant of the module again.
func (b *bench) load() {
	b.Helper()
	modules, err := filepath.Glob("/opt/modules/*/rdma_rxe.ko")
	b.must(err)
	if len(modules) != 1 {
		b.Fatalf("found modules %q, want one", modules)
	}
	b.Exec("insmod", modules[0])
}

// quarantined waits until the given number of devices have the quarantine taint. If count is zero, it also waits until
// the driver has no records of pods.
func (c *cluster) quarantined(count int) {
	c.Helper()
	c.until(fmt.Sprintf("%d devices in quarantine", count), func(ctx context.Context) error {
		devices, err := c.Offered(ctx)
		have := 0
		for _, taint := range devices {
			if taint == "quarantined" {
				have++
			}
		}
		if err == nil && have != count {
			err = fmt.Errorf("the offered devices are %v", devices)
		}
		if err == nil && count == 0 {
			err = kubenode.Forgotten(ctx)
		}
		return err
	})
}

// The module is unloaded while one pod has its device open and another pod is starting. An event for the first pod
// reports the loss of the device, and the second pod does not start. The first pod's function is quarantined until it
// has its RDMA device again. Once it does, both functions are available.
func TestClusterModuleUnloaded(t *testing.T) {
	c := newCluster(t, exclusive)
	c.needsLab()
	links := c.rdmaFunctions(2)
	c.expose()
	c.topology("module", "netdev", ofFunctions, "")
	c.podObject("user", "module", opened)
	c.Ready("user")
	user := c.inside("user")
	theirs := user.devices()
	if len(theirs) != 1 {
		t.Fatalf("the pod has RDMA devices %q, want one", theirs)
	}
	c.unload()
	loaded := false
	t.Cleanup(func() {
		if !loaded {
			c.load()
		}
	})
	c.podObject("late", "module", checked)
	user.sees()
	c.machine().sees()
	c.Event("user", "RDMA device "+theirs[0])
	c.goes("user")
	c.quarantined(1)
	leftovers, err := kubenode.Query(context.Background(), "leftovers")
	if reason := "its RDMA device " + theirs[0] + " is not on the host"; err != nil ||
		!strings.Contains(leftovers, reason) {
		t.Errorf("leftovers = %s (%v), want a quarantined device with reason %q", leftovers, err, reason)
	}
	if _, err := c.Process("late"); err == nil {
		t.Error("a pod started without its RDMA device")
	}
	c.load()
	loaded = true
	for i, link := range links {
		c.machine().addDevice(fmt.Sprintf("rxe%d", i), link)
	}
	c.release()
	c.Ready("late")
	if devices := c.inside("late").devices(); len(devices) != 1 {
		t.Errorf("the pod has RDMA devices %q, want one", devices)
	}
	c.goes("late")
	c.onMachine("rxe0", "rxe1")
	c.quarantined(0)
	c.hasLinks(links...)
}

// twoFunctions contains a topology and a claim template for two functions with RDMA devices, each with its own limits.
const twoFunctions = `
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: two}
spec:
  steps:
  - name: left
    type: netdev
    selector: {cel: 'device.attributes["dra.networking"].type == "vf" && device.attributes["dra.networking"].rdma'}
    rdma: {}
    limits: {rdmaHandles: 2, rdmaObjects: 2}
    config: {ipam: {type: host-local, subnet: 10.8.0.0/24}}
  - name: right
    type: netdev
    selector: {cel: 'device.attributes["dra.networking"].type == "vf" && device.attributes["dra.networking"].rdma'}
    rdma: {}
    limits: {rdmaHandles: 3, rdmaObjects: 2}
    config: {ipam: {type: host-local, subnet: 10.9.0.0/24}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: two}
spec:
  spec:
    devices:
      requests:
      - {name: left, exactly: {deviceClassName: two-left}}
      - {name: right, exactly: {deviceClassName: two-right}}
`

// limits returns the limits in rdma.max for a pod's container, sorted and without device names and indexes. It also
// returns the names of the corresponding devices.
func (c *cluster) limits(pod string) (values, names []string) {
	c.Helper()
	output, err := c.execute(context.Background(), pod, "/usr/bin/cat", "/sys/fs/cgroup/rdma.max")
	c.must(err)
	for line := range strings.Lines(output) {
		fields := strings.Fields(line)
		if len(fields) < 3 || !strings.HasPrefix(fields[len(fields)-1], "hca_object=2") {
			continue
		}
		values, names = append(values, fields[len(fields)-2]), append(names, fields[0])
	}
	slices.Sort(values)
	return values, names
}

// Each RDMA device in a claim has its own limit, even if another device on the node has the same name in another
// network namespace: the kernel identifies devices in this file by name, and additionally by index if names are not
// unique.
func TestClusterRDMALimitsOfSeveral(t *testing.T) {
	c := newCluster(t, exclusive)
	c.needsLab()
	c.rdmaFunctions(3)
	c.expose()
	c.apply(twoFunctions)
	c.topology("single", "netdev", ofFunctions, "\n    limits: {rdmaHandles: 1, rdmaObjects: 2}")
	c.offers(3)
	two := c.pod("two", "two")
	values, names := c.limits("two")
	if devices := two.devices(); !slices.Equal(values, []string{"hca_handle=2", "hca_handle=3"}) ||
		len(devices) != 2 || !slices.Equal(slices.Sorted(slices.Values(names)), devices) {
		t.Fatalf("devices %q have limits %q, but the pod has devices %q", names, values, devices)
	}
	for _, name := range names {
		c.limited("two", name)
	}
	third := c.machine().devices()[0]
	c.machine().rename(third, names[0])
	single := c.pod("single", "single")
	if devices := single.devices(); !slices.Equal(devices, names[:1]) {
		t.Fatalf("the pod has the devices %q, want %q", devices, names[:1])
	}
	if values, have := c.limits("single"); !slices.Equal(values, []string{"hca_handle=1"}) ||
		!slices.Equal(have, names[:1]) {
		t.Errorf("devices %q have limits %q, want one device with hca_handle=1", have, values)
	}
	c.limited("single", names[0])
	if values, _ := c.limits("two"); !slices.Equal(values, []string{"hca_handle=2", "hca_handle=3"}) {
		t.Errorf("limits of the other pod changed to %q", values)
	}
	c.goes("single")
	c.released("single")
	c.onMachine(names[0])
	c.machine().rename(names[0], third)
	c.goes("two")
	c.onMachine("rxe0", "rxe1", "rxe2")
}

// offers waits until the given number of devices is published. Otherwise, the scheduler could allocate devices while
// only two functions exist: each of them would keep half of the port's bandwidth and leave none for the third.
func (c *cluster) offers(count int) {
	c.Helper()
	c.until(fmt.Sprintf("%d devices that are offered", count), func(ctx context.Context) error {
		devices, err := c.Offered(ctx)
		if err == nil && len(devices) != count {
			err = fmt.Errorf("the offered devices are %v", devices)
		}
		return err
	})
}

// released waits until the driver has released a pod's claim. By then, the driver has restored the name of the pod's
// RDMA device.
func (c *cluster) released(pod string) {
	c.Helper()
	c.until("released claim of pod "+pod, func(ctx context.Context) error {
		claims, err := kubenode.Query(ctx, "claims")
		if err == nil && strings.Contains(claims, pod+"-net-") {
			err = errors.New(claims)
		}
		return err
	})
}

// limited checks that the kernel rejects requests from a program that needs more than two RDMA objects.
func (c *cluster) limited(pod, device string) {
	c.Helper()
	output, err := c.execute(context.Background(), pod, "/usr/bin/timeout", "20", "/usr/bin/ibv_rc_pingpong",
		"-d", device, "-g", "1")
	if !strings.Contains(output, "Couldn't create CQ") && !strings.Contains(output, "Couldn't register MR") {
		c.Errorf("%s in pod %s: %v: %s, want a rejection", device, pod, err, output)
	}
}
