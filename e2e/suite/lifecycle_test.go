package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dra-networking/dra-network-driver/e2e/image"
	"github.com/dra-networking/dra-network-driver/e2e/lab"
	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

// TestLifecycle removes the driver as described in docs/howto.md, installs it with Helm, upgrades it while a pod is
// running, and removes it again. After each removal, no part of the driver remains in the cluster or on the node.
func TestLifecycle(t *testing.T) {
	clone, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	helm, deploy := filepath.Join(clone, "bin/tools/helm"), filepath.Join(clone, "deploy")
	if _, err := os.Stat(helm); err != nil {
		t.Skip("needs Helm; run make bin/tools/helm")
	}
	e := newEnv(t, "lifecycle")
	t.Cleanup(func() {
		e.explain()
		e.installPlain()
	})
	e.usedAndRemoved("plain", "macvlan", "", func() {
		e.must("kubectl", "delete", "-k", deploy, "--ignore-not-found")
	})

	e.must("kubectl", "create", "namespace", stack.Namespace)
	e.must("kubectl", "label", "namespace", stack.Namespace, "pod-security.kubernetes.io/enforce=privileged")
	e.importPlugin("image-macvlan")
	e.must(helm, "install", "dra-network", deploy+"/chart", "--namespace", stack.Namespace, "--set",
		"cniPlugins.image=localhost/cni-plugins:e2e", "--wait", "--timeout=2m")
	// no schema describes this plugin's device parameter
	e.usedAndRemoved("chart", "image-macvlan", "master: lc-chart, ", func() {
		e.must(helm, "uninstall", "dra-network", "--namespace", stack.Namespace, "--wait", "--timeout=2m")
		e.must("kubectl", "delete", "-f", deploy+"/crds")
		e.must("kubectl", "delete", "namespace", stack.Namespace, "--timeout=2m")
	}, func() {
		e.must(helm, "upgrade", "dra-network", deploy+"/chart", "--namespace", stack.Namespace,
			"--reset-then-reuse-values", "--set", "node.logLevel=4", "--wait", "--timeout=2m")
		e.must(helm, "test", "dra-network", "--namespace", stack.Namespace, "--logs", "--timeout=2m")
		e.noRightsLeft()
	})
}

// noRightsLeft checks that after the chart's test, no permissions to run commands in the driver's pods remain.
func (e *env) noRightsLeft() {
	e.Helper()
	if output, err := e.kubectl("", "-n", stack.Namespace, "get", "pods,serviceaccounts,rolebindings", "-o",
		"name"); err != nil || strings.Contains(output, "dra-network-test") {
		e.Errorf("objects from helm test still exist: %v\n%s", err, output)
	}
}

// usedAndRemoved creates a pod with an interface from a plugin, runs the meanwhile functions, and then removes the
// driver as documented.
func (e *env) usedAndRemoved(name, plugin, config string, remove func(), meanwhile ...func()) {
	e.Helper()
	link := "lc-" + name
	e.veth(link)
	objects := documents(expose(link, plugin, true, link), topology(link, fmt.Sprintf(`
- name: uplink
  type: %s
  selector: {cel: 'device.attributes["dra.networking"].ifName == "%s"'}
  config: {%smode: bridge, ipam: {type: host-local, subnet: 10.145.0.0/24}}`, plugin, link, config)),
		claimTemplate(link, link+"-uplink"))
	e.create(objects)
	e.offer(link)
	e.create(pod(name, link))
	e.ready(name)
	index := e.inPod(name, "cat", "/sys/class/net/net1/ifindex")
	driver := e.processes(stack.Driver)
	for _, do := range meanwhile {
		do()
		if now := e.processes(stack.Driver); len(now) != 1 || now[0] == driver[0] {
			e.Errorf("the driver was not replaced: processes are %v, before: %v", now, driver)
		}
		if after := e.inPod(name, "cat", "/sys/class/net/net1/ifindex"); after != index {
			e.Errorf("the pod's interface was replaced: its index is %s, before: %s", after, index)
		}
		e.create(pod(name+"-later", link))
		e.ready(name + "-later")
	}
	e.must("kubectl", "-n", e.namespace, "delete", "pods", "--all", "--timeout=2m")
	e.must("kubectl", "-n", e.namespace, "delete", "resourceclaimtemplates", "--all")
	e.must("kubectl", "delete", "ntopo", "--all", "--timeout=2m")
	e.must("kubectl", "delete", "dep", "--all", "--timeout=2m")
	if left, err := e.netdra("release"); err != nil || !strings.Contains(left, "no failed cleanups") {
		e.Errorf("netdra release returned %v, want no failed cleanups:\n%s", err, left)
	}
	remove()
	e.removedFromNode()
	e.nothingInTheCluster()
}

// removedFromNode performs the remaining manual steps, and checks that nothing else from the driver remains on the
// node.
func (e *env) removedFromNode() {
	e.Helper()
	e.eventually("the driver has ended", func(context.Context) (bool, error) {
		running := e.processes(stack.Driver)
		return len(running) == 0, fmt.Errorf("processes are still running: %v", running)
	})
	for _, dir := range []string{"/var/lib/kubelet/plugins/dra.networking", "/var/log/dra-network"} {
		if err := os.RemoveAll(e.fileOnNode(dir)); err != nil {
			e.Error(err)
		}
	}
	for _, pattern := range []string{"/var/run/cdi/*", "/var/run/netns/dra-*", "/var/lib/kubelet/plugins/*",
		"/var/lib/kubelet/plugins_registry/*", "/var/lib/cni/results/*dra*"} {
		if left := e.filesOnNode(pattern); len(left) > 0 {
			e.Errorf("%s: files on the node still exist: %v", pattern, left)
		}
	}
}

// nothingInTheCluster waits until none of the driver's objects remain. The kubelet removes the node's slices 30 seconds
// after the driver.
func (e *env) nothingInTheCluster() {
	e.Helper()
	e.eventually("nothing of the driver is in the cluster", func(context.Context) (bool, error) {
		left, err := e.kubectl("", "get", "resourceslices,deviceclasses", "-o", "name")
		if err == nil && strings.Contains(left, "/") {
			err = errors.New(left)
		}
		return err == nil, err
	})
	left, err := e.kubectl("", "get",
		"crds,clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,validatingwebhookconfigurations,namespaces", "-o", "name")
	if err != nil || strings.Contains(left, "dra-network") || strings.Contains(left, "networking.dra.io") {
		e.Errorf("objects in the cluster still exist (%v):\n%s", err, left)
	}
}

// importPlugin imports an image into the node that contains a shell and the macvlan plugin under another name. The
// node's own plugin directory has no plugin with that name.
func (e *env) importPlugin(name string) {
	e.Helper()
	busybox, err := lab.StaticBusybox()
	if err != nil {
		e.Fatal(err)
	}
	links := map[string]string{}
	for _, applet := range []string{"sh", "cp", "chmod", "mv", "ls"} {
		links["/bin/"+applet] = "busybox"
	}
	tar := filepath.Join(e.TempDir(), "plugins.tar")
	err = image.Write(tar, image.Spec{
		Ref: "localhost/cni-plugins:e2e", Links: links,
		Files: []image.File{{Path: "/bin/busybox", Source: busybox},
			{Path: "/opt/cni/bin/" + name, Source: e.fileOnNode("/opt/cni/bin/macvlan")}},
	})
	if err == nil {
		err = e.cluster.ImportImages(context.Background(), tar)
	}
	if err != nil {
		e.Fatal(err)
	}
}

func (e *env) installPlain() {
	clone, err := filepath.Abs("../..")
	if err == nil {
		err = stack.Install(context.Background(), e.cluster,
			stack.Options{Clone: clone, Bin: filepath.Join(clone, "bin"), Progress: os.Stderr})
	}
	if err != nil {
		e.Errorf("cannot install the driver again: %v", err)
	}
}

// must runs a command in the cluster's namespaces, and fails the test if the command fails.
func (e *env) must(args ...string) {
	e.Helper()
	start := time.Now()
	defer func() { e.Logf("%s %s", since(start), strings.Join(args, " ")) }()
	if _, err := e.cluster.Exec(context.Background(), args...); err != nil {
		e.Fatal(err)
	}
}
