package rdma

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/dra-networking/dra-network-driver/e2e/internal/kubenode"
)

// The path of the plugin "held", the prefix of its control files, and its second name, which is used for a step that
// does not create an interface.
const (
	heldPlugin  = "/opt/cni/bin/held"
	heldControl = "/run/cni/rdma-"
	heldSecond  = "held-second"
)

// heldTopology has two steps: netdev with RDMA devices, and a step that does nothing. A test can pause each step before
// it starts its work and after it has completed it.
const heldTopology = `
apiVersion: networking.dra.io/v1alpha1
kind: CNIPluginSchema
metadata: {name: held}
spec:
  cniType: held
  deviceParameters: [{parameter: pciBusID, attribute: pciAddress}, {parameter: device, attribute: ifName}]
  output: {devices: moves}
---
apiVersion: networking.dra.io/v1alpha1
kind: CNIPluginSchema
metadata: {name: held-second}
spec:
  cniType: held-second
  input: {prevResult: required}
  output: {interfaces: passthrough}
---
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: held}
spec:
  priority: 300
  selector: {cel: 'device.attributes["dra.networking"].type == "vf"'}
  action: expose
  exposure:
    allowMultipleAllocations: false
    supportedCNIPlugins: [{name: held, exclusive: true}]
---
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: held}
spec:
  steps:
  - name: nic
    type: held
    selector: {cel: 'device.attributes["dra.networking"].type == "vf" && device.attributes["dra.networking"].rdma'}
    rdma: {}
    config: {plugin: netdev, control: /run/cni/rdma-nic, ipam: {type: host-local, subnet: 10.8.0.0/24}}
  - name: second
    type: held-second
    dependOn: [nic]
    config: {control: /run/cni/rdma-second}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: held}
spec:
  spec:
    devices:
      requests:
      - {name: nic, exactly: {deviceClassName: held-nic}}
`

// moment is a point at which a plugin is paused, together with the locations of the function's link and RDMA device at
// that point.
type moment struct {
	name       string // the step, and the name of the moment in the plugin "held"
	link, rdma string // "pod" or "machine"
}

// The driver is killed at each stage of a pod's life: while it attaches the pod, while the next driver rolls back the
// attachment, while a third driver attaches the pod again, and at each stage of the detachment, which the following
// driver completes. No container starts without its link and RDMA device. At the end, both are on the machine under
// their original names.
func TestClusterKilled(t *testing.T) {
	c := newCluster(t, exclusive)
	c.needsLab()
	k := &killing{cluster: c, link: c.rdmaFunctions(1)[0]}
	second := filepath.Join(filepath.Dir(heldPlugin), heldSecond)
	c.must(os.Symlink(filepath.Base(heldPlugin), second))
	t.Cleanup(func() { c.must(os.Remove(second)) })
	c.apply(heldTopology)
	begin, end := []moment{
		{"nic.after-ADD", "pod", "machine"},
		{"nic.before-DEL", "pod", "machine"}, // rollback of the ADD
		{"second.before-ADD", "pod", "pod"},  // ADD again
	}, []moment{
		{"second.before-DEL", "pod", "pod"},
		{"nic.before-DEL", "pod", "machine"},
		{"nic.after-DEL", "machine", "machine"},
	}
	k.hold(begin...)
	k.podObject("killed", "held", checked)
	for _, stop := range begin {
		k.killAt(stop)
	}
	k.Ready("killed")
	k.inside("killed").sees("rxe0")
	k.hold(end...)
	k.Remove("killed")
	for _, stop := range end {
		k.killAt(stop)
	}
	k.Gone("killed")
	k.until("machine that is as it was", func(ctx context.Context) error {
		problem := kubenode.Forgotten(ctx)
		if where := k.place(); where != [2]string{"machine", "machine"} {
			problem = errors.Join(problem, fmt.Errorf("the link and the RDMA device are in %q", where))
		}
		return problem
	})
	if left, err := filepath.Glob("/run/netns/dra-*"); err != nil || len(left) > 0 {
		t.Errorf("pins remain: %q, %v", left, err)
	}
}

// checked is the command for a container. When the container starts, the command fails unless the container has its
// interface and can open all of its devices. It then writes the names of the opened devices to openedFile. It exits on
// SIGTERM; otherwise, the kubelet would wait two seconds for the container.
const checked = `test -e /sys/class/net/net1 &&
	for file in /dev/infiniband/uverbs*; do : <"$file" || exit 1; opened="$opened $file"; done &&
	trap "exit 0" TERM && echo $opened >` + openedFile + ` && { /bin/sleep 86400 & wait; }`

// openedFile is the file in the container that checked writes.
const openedFile = "/opened"

// killing is a cluster with a virtual function whose plugin can be paused.
type killing struct {
	*cluster
	link string
}

// place returns the locations of the link and the RDMA device: "machine" if they are on the machine under their
// original names, and "pod" otherwise.
func (k *killing) place() (where [2]string) {
	k.Helper()
	where = [2]string{"pod", "pod"}
	var missing netlink.LinkNotFoundError
	if _, err := netlink.LinkByName(k.link); err == nil {
		where[0] = "machine"
	} else if !errors.As(err, &missing) {
		k.Fatal(err)
	}
	if devices := k.machine().devices(); slices.Contains(devices, "rxe0") {
		where[1] = "machine"
	} else if len(devices) > 0 {
		k.Fatalf("the machine has RDMA devices %q, want only rxe0 or none", devices)
	}
	return where
}

// hold makes the plugin pause at the given moments. Each pause lasts until the driver has been killed at that moment,
// or until the test ends.
func (k *killing) hold(moments ...moment) {
	k.Helper()
	for _, stop := range moments {
		path := heldControl + stop.name
		k.Cleanup(func() { _ = os.Remove(path) })
		k.must(os.WriteFile(path, nil, 0o600))
	}
}

// killAt waits until the plugin is paused at a moment, kills the driver, and resumes the plugin.
func (k *killing) killAt(stop moment) {
	k.Helper()
	stage, when, _ := strings.Cut(stop.name, ".")
	waits := heldControl + stage + ".at-" + when
	k.until("plugin that stands at "+stop.name, func(context.Context) error {
		_, err := os.Stat(waits)
		return err
	})
	if where := k.place(); where != [2]string{stop.link, stop.rdma} {
		k.Errorf("at %s, the link and the RDMA device are in %q, want %q", stop.name, where, [2]string{stop.link,
			stop.rdma})
	}
	k.Logf("killing the driver at %s", stop.name)
	k.KillDriver()
	k.must(os.Remove(heldControl + stop.name))
	if err := os.Remove(waits); err != nil && !errors.Is(err, fs.ErrNotExist) { // the plugin was also killed
		k.Fatal(err)
	}
}
