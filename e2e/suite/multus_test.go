package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/dra-networking/dra-network-driver/e2e/internal/nad"
	"github.com/dra-networking/dra-network-driver/e2e/lab"
	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

// network returns a NetworkAttachmentDefinition. It includes the resource name unless resource is empty.
func network(name, resource, config string) string { return nad.Network("", name, resource, config) }

// multus installs the real Multus as the node's network until the end of the test. It uses the version in EXTRA_CNI_DIR
// if there is one, and otherwise the version in e2e/multus/go.mod.
func (e *env) multus() {
	e.Helper()
	const multus, configuration = "/opt/cni/bin/multus", "/etc/cni/net.d/00-multus.conf"
	binary := filepath.Join(e.TempDir(), "multus")
	for _, dir := range lab.ExtraCNIDirs() {
		if _, err := os.Stat(filepath.Join(dir, "multus")); err == nil {
			binary = filepath.Join(dir, "multus")
		}
	}
	if _, err := os.Stat(binary); err != nil {
		build := exec.Command("go", "build", "-trimpath", "-o", binary, "tool")
		build.Dir, build.Env = "../multus", append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
		if output, err := build.CombinedOutput(); err != nil {
			e.Fatalf("cannot build Multus: %v\n%s", err, output)
		}
	}
	e.install(binary, multus)
	e.install("../../bin/dra-network-cni", "/opt/cni/bin/netdev")
	e.apply(nad.Definition)
	e.Cleanup(func() { e.onNode("rm", "-f", configuration, "/opt/cni/bin/netdev") })
	e.Cleanup(func() { e.onNode("rm", "-rf", "/var/lib/cni/multus") })
	pods, err := os.ReadFile(e.fileOnNode("/etc/cni/net.d/10-lab.conflist"))
	if err != nil {
		e.Fatal(err)
	}
	e.write(configuration, nad.Multus(e.cluster.Kubeconfig(), "/var/log/multus.log", pods))
	e.Cleanup(func() {
		if log, err := os.ReadFile(e.fileOnNode("/var/log/multus.log")); e.Failed() && err == nil {
			e.Logf("the end of Multus' log:\n%s", log[max(0, len(log)-8000):])
		}
	})
	attempt := 0
	e.eventually("the runtime uses Multus", func(context.Context) (bool, error) {
		attempt++
		name := fmt.Sprintf("probe-%d", attempt)
		e.create(pod(name, ""))
		e.ready(name)
		defer func() { e.deleting(name); e.gone(name) }()
		return e.annotation(name) != "", errors.New("a pod has no " + nad.Status)
	})
}

// annotation returns a pod's network status annotation, which is written by Multus and other programs.
func (e *env) annotation(pod string) string {
	e.Helper()
	found, err := e.client.CoreV1().Pods(e.namespace).Get(context.Background(), pod, metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	return found.Annotations[nad.Status]
}

// install copies a program to the node atomically.
func (e *env) install(program, path string) {
	e.Helper()
	data, err := os.ReadFile(program)
	if err != nil {
		e.Fatal(err)
	}
	e.write(path, string(data))
	e.onNode("chmod", "0755", path)
}

// write writes a file on the node atomically.
func (e *env) write(path, content string) {
	e.Helper()
	dir := e.fileOnNode(filepath.Dir(path))
	temporary := filepath.Join(dir, ".writing")
	if err := errors.Join(os.WriteFile(temporary, []byte(content), 0o600),
		os.Rename(temporary, filepath.Join(dir, filepath.Base(path)))); err != nil {
		e.Fatal(err)
	}
}

// external returns a topology whose devices other programs attach.
func external(name, link string) string {
	return fmt.Sprintf(`
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: %s}
spec:
  attachment: External
  steps:
  - {name: link, type: netdev, selector: {cel: 'device.attributes["dra.networking"].ifName == %q'}}
`, name, link)
}

// offered returns a policy that offers a link to Multus and to topologies.
func offered(name, link, resource string) string {
	return strings.Replace(expose(name, "netdev", false, link), "  exposure:",
		"  exposure:\n    resourceName: "+resource, 1)
}

// claimNamed returns a claim for one device, as a user would create it.
func claimNamed(name, class string) string {
	return fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: %s}
spec: {devices: {requests: [{name: r0, exactly: {deviceClassName: %s}}]}}
`, name, class)
}

// podOn returns a pod that uses the claim and the Multus networks; either may be empty.
func podOn(name, claim, networks string) string {
	made := pod(name, claim)
	made = strings.Replace(made, "resourceClaimTemplateName: "+claim, "resourceClaimName: "+claim, 1)
	if networks == "" {
		return made
	}
	return strings.Replace(made, "metadata: {name: "+name+"}", fmt.Sprintf(
		"metadata: {name: %s, annotations: {k8s.v1.cni.cncf.io/networks: %s}}", name, networks), 1)
}

// owners returns the network namespaces that contain a link with the given MAC address. It searches the namespaces of
// the node and its pods.
func (e *env) owners(mac string) []string {
	e.Helper()
	var owners []string
	pins := slices.DeleteFunc(e.filesOnNode("/var/run/netns/*"),
		func(pin string) bool { return !isRuntimesPin(filepath.Base(pin)) })
	for _, namespace := range append([]string{""}, pins...) {
		args := []string{"ip", "-o", "link"}
		if namespace != "" {
			args = []string{"nsenter", "--net=/var/run/netns/" + filepath.Base(namespace), "ip", "-o", "link"}
		}
		shown, err := e.cluster.Exec(context.Background(), args...)
		if err == nil && strings.Contains(string(shown), mac) {
			owners = append(owners, filepath.Base(namespace))
		}
	}
	return owners
}

// The scheduler allocates a device, the real Multus attaches it through a NetworkAttachmentDefinition, and the driver
// restores it afterwards. No other pod gets the device in the meantime, even if the driver is killed.
func TestMultusAttachesWhatIsAllocated(t *testing.T) {
	e := newEnv(t, "multus")
	e.multus()
	e.veth("mu0")
	before := e.link("mu0")
	// Multus 4.2.3 identifies devices by claim name, so each claim has its own network.
	const lan = `{"cniVersion": "1.0.0", "name": "lan", "type": "netdev",
		"ipam": {"type": "host-local", "subnet": "10.171.0.0/24"}}`
	e.apply(documents(offered("mu", "mu0", "example.com/mu"), external("mu", "mu0"), claimNamed("mu", "mu-link"),
		claimNamed("rival", "mu-link"), network("lan", "mu", lan), network("lan-of-rival", "rival", lan)))
	e.offer("mu0")
	published, err := e.kubectl("", "get", "resourceslices", "-o", "jsonpath={.items[*].spec.devices[*].attributes}")
	if err != nil || !containsAll(published, []string{`"k8s.cni.cncf.io/deviceID":{"string":"mu0"}`,
		`"k8s.cni.cncf.io/resourceName":{"string":"example.com/mu"}`}) {
		t.Errorf("the published attributes are incomplete:\n%s", published)
	}

	user := podOn("p", "mu", "lan")
	e.apply(user)
	e.ready("p")
	if shown := e.inPod("p", "ip", "addr", "show", "dev", "net1"); !containsAll(shown,
		[]string{"inet 10.171.0.", mac(before)}) {
		t.Errorf("net1 has unexpected addresses:\n%s", shown)
	}
	if status := e.annotation("p"); !containsAll(status, []string{`"multus/lan"`, `"net1"`, "10.171.0."}) {
		t.Errorf("the network status is incomplete: %s", status)
	}
	e.eventually("the claim reports its device as reserved", func(context.Context) (bool, error) {
		status, err := e.kubectl("", "get", "resourceclaim", "mu", "-o", "jsonpath={.status.devices}")
		return strings.Contains(status, `"reason":"Reserved"`), fmt.Errorf("%s: %w", status, err)
	})

	e.apply(podOn("other", "rival", "lan-of-rival"))
	e.event("other", "FailedScheduling")
	for _, pid := range e.processes(stack.Driver) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	e.driverReady()
	e.inPod("p", "ip", "addr", "show", "dev", "net1")
	e.offer("mu0")
	e.inNamespaceOf(mac(before), "ip", "link", "set", "net1", "mtu", "1380")
	e.onNode("test", "-e", "/var/run/cdi/dra.networking_external_"+e.uid("mu")+".json")

	e.deleting("p")
	e.ready("other") // the device is free only after the driver has cleaned it
	if shown := e.inPod("other", "ip", "addr", "show", "dev", "net1"); !containsAll(shown,
		[]string{"mtu 1500", mac(before)}) {
		t.Errorf("net1 of the next pod has an unexpected MTU or MAC address:\n%s", shown)
	}
	e.gone("p")
	e.deleting("other")
	e.gone("other")
	if after := e.link("mu0"); mac(after) != mac(before) || !strings.Contains(after, "mtu 1500") {
		t.Errorf("the link was restored as\n%s\nwant MTU 1500 and the MAC address of\n%s", after, before)
	}
}

// uid returns the UID of a claim.
func (e *env) uid(claim string) string {
	e.Helper()
	found, err := e.client.ResourceV1().ResourceClaims(e.namespace).Get(context.Background(), claim,
		metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	return string(found.UID)
}

// inNamespaceOf runs a command in the network namespace that contains the link with the given MAC address.
func (e *env) inNamespaceOf(mac string, command ...string) {
	e.Helper()
	owners := e.owners(mac)
	if len(owners) != 1 {
		e.Fatalf("link %s is in %q, want exactly one place", mac, owners)
	}
	e.onNode(append([]string{"nsenter", "--net=/var/run/netns/" + owners[0]}, command...)...)
}

// A link is migrated from Multus alone to Multus with claims, and then to the driver, while pods of all three kinds
// request the link. No two pods ever have it at the same time. Each pod in turn gets the link with all settings
// applied, while the other pods wait.
func TestMigrationFromMultus(t *testing.T) {
	e := newEnv(t, "migration")
	e.multus()
	e.veth("mg0")
	address := mac(e.link("mg0"))
	stop := e.watchOwners(address)
	e.apply(documents(
		network("old", "", `{"cniVersion": "1.0.0", "name": "old", "type": "netdev", "device": "mg0",
			"ipam": {"type": "host-local", "subnet": "10.172.0.0/24"}}`),
		network("new", "mg", `{"cniVersion": "1.0.0", "name": "new", "type": "netdev",
			"ipam": {"type": "host-local", "subnet": "10.173.0.0/24"}}`)))
	has := func(pod, subnet string) {
		t.Helper()
		e.ready(pod)
		if shown := e.inPod(pod, "ip", "addr", "show", "dev", "net1"); !containsAll(shown, []string{subnet, address}) {
			t.Errorf("net1 of %s has unexpected addresses:\n%s", pod, shown)
		}
	}
	e.create(podOn("old", "", "old"))
	has("old", "10.172.0.")

	// The policy is created while the old pod has the link. The link is not on the node, so it is not offered.
	e.apply(documents(offered("mg", "mg0", "example.com/mg"), external("mg", "mg0"), claimNamed("mg", "mg-link")))
	e.create(podOn("between", "mg", "new"))
	e.event("between", "FailedScheduling")
	e.deleting("old")
	has("between", "10.173.0.")

	// While the link is allocated to a claim, a pod that uses only Multus cannot get it either.
	e.create(podOn("late", "", "old"))
	e.event("late", "FailedCreatePodSandBox", "mg0")
	has("between", "10.173.0.")
	e.deleting("late")
	e.gone("late")

	e.apply(documents(topology("mg-own", `
- name: link
  type: netdev
  selector: {cel: 'device.attributes["dra.networking"].ifName == "mg0"'}
  config: {ipam: {type: host-local, subnet: 10.174.0.0/24}}`), claimTemplate("own", "mg-own-link")))
	e.create(pod("own", "own"))
	e.event("own", "FailedScheduling")
	e.deleting("between")
	has("own", "10.174.0.")
	e.gone("between", "old")
	e.deleting("own")
	e.gone("own")
	wrong, seen := stop()
	if len(wrong) > 0 {
		t.Errorf("two namespaces had the link at the same time: %q", wrong)
	}
	if seen < 4 {
		t.Errorf("the link was observed only %d times, want at least 4", seen)
	}
}

// watchOwners polls the owners of a link until stop is called or the test ends. stop returns every case where the link
// had two owners at the same time, and the number of polls that found an owner.
func (e *env) watchOwners(mac string) (stop func() (wrong []string, seen int)) {
	e.Helper()
	var wrong []string
	seen := 0
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
			}
			owners := e.owners(mac)
			if len(owners) > 0 {
				seen++
			}
			if len(owners) > 1 {
				// The link may have moved during the read, so only report a conflict that a second read confirms.
				if again := e.owners(mac); slices.Equal(again, owners) {
					wrong = append(wrong, strings.Join(owners, " and "))
				}
			}
		}
	}()
	var once sync.Once
	stop = func() ([]string, int) {
		once.Do(func() { close(done) })
		<-ended
		return wrong, seen
	}
	e.Cleanup(func() { stop() })
	return stop
}

// deployWith deploys the driver with the given chart settings until the end of the test.
func (e *env) deployWith(settings ...string) {
	e.Helper()
	deploy := func(settings ...string) {
		e.applyChart([]string{"node", "admission"}, settings...)
		if output, err := e.cluster.Exec(context.Background(), "kubectl", "-n", stack.Namespace, "rollout", "status",
			"daemonset/"+stack.Driver, "--timeout=60s"); err != nil {
			e.Fatalf("the rollout of the driver failed: %v\n%s", err, output)
		}
		e.driverReady()
	}
	deploy(settings...)
	e.Cleanup(func() { deploy() })
}

// deployWithPolicies deploys the shipped policies with the given chart settings until the end of the test.
func (e *env) deployWithPolicies(settings ...string) {
	e.Helper()
	e.applyChart([]string{"policies"}, settings...)
	e.Cleanup(func() { e.applyChart([]string{"policies"}) })
}

// applyChart applies the output of the chart's templates with the given settings.
func (e *env) applyChart(templates []string, settings ...string) {
	e.Helper()
	args := []string{"template", "dra-network", "../../deploy/chart", "--namespace", stack.Namespace}
	for _, template := range templates {
		args = append(args, "--show-only", "templates/"+template+".yaml")
	}
	for _, setting := range settings {
		args = append(args, "--set", setting)
	}
	manifests, err := exec.Command("../../bin/tools/helm", args...).Output()
	if err != nil {
		e.Fatalf("cannot generate the manifests: %v", err)
	}
	if output, err := e.applyOnServer(string(manifests)); err != nil {
		e.Fatalf("cannot deploy the manifests: %v\n%s", err, output)
	}
}

// If the feature is enabled, the driver adds the interfaces from a pod's claims to the annotation written by Multus,
// next to the interfaces from Multus. The driver is not permitted to change anything else in pods.
func TestNetworkStatusBesideMultus(t *testing.T) {
	e := newEnv(t, "netstatus")
	e.deployWith("features.networkStatus=true")
	e.Cleanup(func() {
		for _, kind := range []string{"validatingadmissionpolicybinding", "validatingadmissionpolicy"} {
			e.onNode("kubectl", "delete", kind, "dra-network-driver-network-status")
		}
	})
	e.multus()
	e.offerMacvlan("ns0", "10.175.0.0/24")
	e.veth("ns1")
	e.apply(network("lan", "", `{"cniVersion": "1.0.0", "name": "lan", "type": "macvlan", "master": "ns1",
		"ipam": {"type": "host-local", "subnet": "10.176.0.0/24"}}`))
	e.create(strings.Replace(pod("p", "ns0"), "metadata: {name: p}",
		"metadata: {name: p, annotations: {k8s.v1.cni.cncf.io/networks: lan}}", 1))
	e.ready("p")
	e.eventually("the annotation has both", func(context.Context) (bool, error) {
		status := e.annotation("p")
		return containsAll(status, []string{`"netstatus/lan"`, "10.176.0.", `"default": true`, `"netstatus/ns0"`,
			"10.175.0.", `"net2"`, "dra.networking/claim"}), errors.New(status)
	})
	const onNode = "authentication.kubernetes.io/node-name"
	node, annotation := e.cluster.NodeName(), `{"metadata": {"annotations": {"%s": "[]"}}}`
	for patch, test := range map[string]struct{ node, want string }{
		`{"metadata": {"labels": {"a": "b"}}}`: {node, "and nothing else"},
		fmt.Sprintf(annotation, "a"):           {node, "and nothing else"},
		`{"status": {"reason": "Lies"}}`:       {node, "and nothing else"},
		fmt.Sprintf(annotation, nad.Status):    {"other", "of its own node only"},
	} {
		config, err := e.cluster.RESTConfig()
		if err != nil {
			t.Fatal(err)
		}
		config.Impersonate = rest.ImpersonationConfig{
			UserName: "system:serviceaccount:" + stack.Namespace + ":" + stack.Driver,
			Extra:    map[string][]string{onNode: {test.node}}}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.CoreV1().Pods(e.namespace).Patch(context.Background(), "p", types.MergePatchType, []byte(patch),
			metav1.PatchOptions{}, "status")
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("patch %s returned an unexpected result: %v", patch, err)
		}
	}
	e.deleting("p")
	e.gone("p")
}
