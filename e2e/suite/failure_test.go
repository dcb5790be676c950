package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-networking/dra-network-driver/e2e/internal/observer"
	"github.com/dra-networking/dra-network-driver/e2e/lab"
	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

// If the second step in a chain fails, nothing is left behind, and the error names the step and includes the plugin's
// message.
func TestFailingStepLeavesNothingAndSaysWhy(t *testing.T) {
	e := newEnv(t, "failing")
	e.veth("fa0")
	before := e.link("fa0")
	e.apply(documents(expose("fa0", "host-device", false, "fa0"), topology("fa", `
- name: link
  type: host-device
  selector: {cel: 'device.attributes["dra.networking"].ifName == "fa0"'}
  config: {ipam: {type: host-local, subnet: 10.111.0.0/24}}
- name: knob
  type: tuning
  dependOn: [link]
  config: {sysctl: {net.ipv4.conf.IFNAME.no_such_knob: "1"}}`), claimTemplate("fa", "fa-link")))
	e.offer("fa0")
	failing := pod("p", "fa")
	e.apply(failing)
	wants := []string{`step "knob" (tuning) of topology fa`, "no_such_knob"}
	e.event("p", append(wants, "NetworkAttachFailed")...)
	// Whether the runtime is still waiting when the step fails depends on the speed of the machine. If it is not, the
	// gate prevents the container from starting.
	e.anyEvent("p", append(wants, "FailedCreatePodSandBox"), []string{"when-attached"})
	e.deviceStatus("p", `"status":"False"`, `"reason":"StepFailed"`, `(tuning) of topology fa`, "no_such_knob")
	e.reports("pod "+e.namespace+"/p waits", "no_such_knob", `data-is="RESULT">failed: `, `data-is="COMMAND">DEL<`)
	// Most of the time, no sandbox exists: every 15 seconds, the kubelet tries to create one and fails immediately.
	e.eventually("netdra reports why the pod waits", func(context.Context) (bool, error) {
		claims, err := e.netdra("claims")
		report, _ := e.doctor()
		return err != nil && containsAll(claims, append(wants, "failing/p", "failed")) &&
			containsAll(report, append(wants, "pod failing/p waits")), fmt.Errorf("%w\n%s\n%s", err, claims, report)
	})
	e.remove(failing)
	if after := e.link("fa0"); mac(after) != mac(before) {
		t.Errorf("the link was restored as\n%s\nwant\n%s", after, before)
	}
}

func TestPodsWhileTheDriverIsDown(t *testing.T) {
	e := newEnv(t, "driverdown")
	e.offerMacvlan("dd0", "10.112.0.0/24")
	e.apply(pod("early", "dd0"))
	e.ready("early")

	e.stopDriver()
	e.apply(documents(pod("with", "dd0"), pod("without", "")))
	e.ready("without")
	remove := e.staticPod("static-dd")
	e.mirrorReady("static-dd")
	remove()
	with, err := e.client.CoreV1().Pods(e.namespace).Get(context.Background(), "with", metav1.GetOptions{})
	if err != nil || isReady(with) {
		t.Errorf("a pod with a claim became Ready without the driver: %v", err)
	}
	e.startDriver()
	e.ready("with")
	if shown := e.inPod("with", "ip", "addr", "show", "dev", "net1"); !strings.Contains(shown, "inet 10.112.0.") {
		t.Errorf("want an address in 10.112.0.0/24 on net1, got\n%s", shown)
	}
	// Earlier attachments still exist, and the new driver process detaches them.
	if shown := e.inPod("early", "ip", "addr", "show", "dev", "net1"); !strings.Contains(shown, "inet 10.112.0.2/24") {
		t.Errorf("want the first address in 10.112.0.0/24 on net1 of the early pod, got\n%s", shown)
	}
}

// stopDriver removes the driver from the node, but not its objects.
func (e *env) stopDriver() {
	e.Helper()
	if output, err := e.kubectl("", "-n", stack.Namespace, "patch", "daemonset", stack.Driver, "--type=merge", "-p",
		`{"spec":{"template":{"spec":{"nodeSelector":{"no":"node"}}}}}`); err != nil {
		e.Fatal(err, output)
	}
	e.Cleanup(e.startDriver)
	e.eventually("the driver is gone", func(ctx context.Context) (bool, error) {
		pods, err := e.client.CoreV1().Pods(stack.Namespace).List(ctx,
			metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + stack.Driver})
		return err == nil && len(pods.Items) == 0, err
	})
}

func (e *env) startDriver() {
	e.Helper()
	if output, err := e.kubectl("", "-n", stack.Namespace, "patch", "daemonset", stack.Driver, "--type=merge", "-p",
		`{"spec":{"template":{"spec":{"nodeSelector":null}}}}`); err != nil {
		e.Fatal(err, output)
	}
	if output, err := e.kubectl("", "-n", stack.Namespace, "rollout", "status", "daemonset/"+stack.Driver,
		"--timeout=60s"); err != nil {
		e.Fatal(err, output)
	}
}

// staticPod starts a static pod by writing its manifest, without using the API server. remove deletes the manifest.
func (e *env) staticPod(name string) (remove func()) {
	e.Helper()
	path := filepath.Join(e.cluster.ManifestDir(), name+".yaml")
	manifest := strings.NewReplacer("{name: "+name+"}", "{name: "+name+", namespace: "+e.namespace+"}",
		"    image:", "    env: [{name: "+observer.Pod+", value: "+name+"}]\n    image:").Replace(pod(name, ""))
	if err := os.WriteFile(path, []byte(manifest), 0o600); err != nil {
		e.Fatal(err)
	}
	remove = func() { _ = os.Remove(path) }
	e.Cleanup(remove)
	return remove
}

// mirrorReady waits until the mirror pod of a static pod is Ready.
func (e *env) mirrorReady(name string) {
	e.Helper()
	e.ready(name + "-" + e.cluster.NodeName())
}

// A static pod starts while the API server is down, whether or not the driver is running.
func TestStaticPodWhileTheAPIServerIsDown(t *testing.T) {
	t.Run("driver runs", func(t *testing.T) { newEnv(t, "apidown").staticPodWithoutAPIServer() })
	t.Run("driver is away", func(t *testing.T) {
		e := newEnv(t, "alldown")
		e.stopDriver()
		e.staticPodWithoutAPIServer()
	})
}

func (e *env) staticPodWithoutAPIServer() {
	e.Helper()
	restore := e.stopAPIServer()
	name := "static-" + e.namespace
	remove := e.staticPod(name)
	e.eventually("container of the static pod runs", func(context.Context) (bool, error) {
		return len(e.containersOf(name)) > 0, nil
	})
	restore()
	e.mirrorReady(name)
	remove()
	e.eventually("mirror pod is gone", func(ctx context.Context) (bool, error) {
		pods, err := e.client.CoreV1().Pods(e.namespace).List(ctx, metav1.ListOptions{})
		return err == nil && len(pods.Items) == 0, err
	})
}

// stopAPIServer kills the API server. It is restarted by restore, or at the end of the test.
func (e *env) stopAPIServer() (restore func()) {
	e.Helper()
	ctx := context.Background()
	if err := e.cluster.Stop(ctx, lab.APIServer, syscall.SIGKILL); err != nil {
		e.Fatal(err)
	}
	restore = sync.OnceFunc(func() {
		if err := errors.Join(e.cluster.Start(ctx, lab.APIServer),
			e.cluster.WaitHealthy(ctx, lab.APIServer)); err != nil {
			e.Fatal(err)
		}
	})
	e.Cleanup(restore)
	return restore
}

// When an invalid object is rejected, the message explains how to fix it.
func TestMistakesAreExplained(t *testing.T) {
	e := newEnv(t, "mistakes")
	e.veth("mi0")

	// The custom resource definitions cannot express these two rules. With the shipped configuration, the controller's
	// webhook enforces them.
	t.Run("policy with broken CEL", func(*testing.T) {
		e.refused(strings.Replace(expose("mi-broken", "macvlan", true, "mi0"), `ifName in ["mi0"]`,
			`ifName in ["mi0"`, 1),
			"spec.selector.cel", "Syntax error")
	})
	t.Run("topology with a parameter that its plugin does not have", func(*testing.T) {
		e.refused(topology("mi-typo", `
- {name: uplink, type: macvlan, selector: {cel: 'device.attributes["dra.networking"].ifName == "mi0"'}, config: {mod: bridge}}`),
			"spec.steps[0].config.mod", "mode")
	})
	t.Run("step before its dependency", func(t *testing.T) {
		output, err := e.kubectl(topology("mi-order", `
- {name: tune, type: tuning, dependOn: [uplink]}
- {name: uplink, type: macvlan, selector: {cel: "true"}}`), "apply", "-f", "-")
		if err == nil ||
			!strings.Contains(output,
				"a step must come after every step that it depends on: move tune down, below uplink") {
			t.Errorf("applying steps in the wrong order returned %v:\n%s", err, output)
		}
	})
	t.Run("claim without a root step", func(*testing.T) {
		// Create the template first: once the topology exists, the webhook rejects this kind of template.
		e.apply(documents(claimTemplate("half", "mi-left"), expose("mi", "macvlan", true, "mi0"), topology("mi", `
- {name: left, type: macvlan, selector: {cel: 'device.attributes["dra.networking"].ifName == "mi0"'}}
- {name: right, type: macvlan, selector: {cel: 'device.attributes["dra.networking"].ifName == "mi0"'}}`)))
		e.offer("mi0")
		e.apply(pod("p", "half"))
		// The API server reports this when the claim is created, if the topology's classes exist by then; otherwise,
		// the node reports it.
		e.event("p", "add a request", "mi-right")
	})
}

// If the kernel does not support the link type that an installed plugin creates, the plugin is not offered, so no pod
// that needs it is scheduled to the node. The status of the policy and netdra report the reason.
func TestKernelLacksAPluginsLinks(t *testing.T) {
	e := newEnv(t, "kernel")
	e.veth("ke0")
	const plugin = "kernel-test"
	e.onNode("cp", "/opt/cni/bin/macvlan", "/opt/cni/bin/"+plugin)
	e.Cleanup(func() { e.onNode("rm", "/opt/cni/bin/"+plugin) })
	schema := func(linkType string) string {
		return fmt.Sprintf(`
apiVersion: networking.dra.io/v1alpha1
kind: CNIPluginSchema
metadata: {name: %[1]s}
spec:
  cniType: %[1]s
  linkTypes: [%[2]s]
  deviceParameters: [{parameter: master, attribute: ifName}]
`, plugin, linkType)
	}
	e.apply(schema("nosuchkind"))
	e.apply(documents(expose("ke0", plugin, true, "ke0"), topology("ke0", `
- name: link
  type: `+plugin+`
  selector: {cel: 'device.attributes["dra.networking"].ifName == "ke0"'}`), claimTemplate("ke0", "ke0-link")))
	const why = "the kernel does not support links of type nosuchkind"
	e.eventually("the policy has an event", func(context.Context) (bool, error) {
		output, err := e.kubectl("", "get", "events", "-n", "default", "--field-selector",
			"involvedObject.name=ke0,reason=DevicesNotOffered", "-o", "jsonpath={.items[*].message}")
		return err == nil && strings.Contains(output, why), fmt.Errorf("%w: %s", err, output)
	})
	if output, err := e.netdra("explain", "ke0"); err == nil || !strings.Contains(output, why) {
		t.Errorf("netdra explain returned %v\n%s", err, output)
	}
	e.create(pod("one", "ke0"))
	e.event("one", "FailedScheduling", "cannot allocate all claims")
	if output, err := e.kubectl(schema("macvlan"), "apply", "-f", "-"); err != nil {
		t.Fatalf("cannot apply: %v\n%s", err, output)
	}
	e.ready("one")
	e.deleting("one")
	e.gone("one")
}

// refused waits until kubectl reports that the YAML is rejected and the error contains the given texts. The API server
// calls the webhook only once it trusts the webhook's certificate.
func (e *env) refused(yaml string, texts ...string) {
	e.Helper()
	e.eventually(fmt.Sprintf("it is refused with %q", texts), func(context.Context) (bool, error) {
		output, err := e.kubectl(yaml, "apply", "--dry-run=server", "-f", "-")
		return err != nil && containsAll(output, texts), fmt.Errorf("kubectl printed %s", output)
	})
}
