package suite

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/dra-networking/dra-network-driver/e2e/internal/nad"
	"github.com/dra-networking/dra-network-driver/e2e/internal/ovnkube"
)

// ovnDouble is the OVN-Kubernetes test double on the node.
type ovnDouble struct {
	e       *env
	program string
	output  *os.File
	running *exec.Cmd
}

// ovnKubernetes starts the OVN-Kubernetes test double on the node. At the end of the test, the double's switch must
// have no ports.
func (e *env) ovnKubernetes() *ovnDouble {
	e.Helper()
	e.apply(nad.Definition)
	if output, err := e.kubectl("", "wait", "--for=condition=Established", "--timeout=30s",
		"crd/network-attachment-definitions.k8s.cni.cncf.io"); err != nil {
		e.Fatal(err, output)
	}
	d := &ovnDouble{e: e, program: filepath.Join(e.TempDir(), "ovnkube")}
	build := exec.Command("go", "build", "-o", d.program, "../cmd/ovnkube")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		e.Fatalf("cannot build the double of OVN-Kubernetes: %v\n%s", err, output)
	}
	var err error
	if d.output, err = os.Create(filepath.Join(e.TempDir(), "log")); err != nil {
		e.Fatal(err)
	}
	d.start()
	e.Cleanup(func() {
		d.hasPorts(0)
		d.stop(syscall.SIGTERM)
		if e.Failed() {
			e.Logf("log of the double of OVN-Kubernetes:\n%s", d.log())
		}
		_ = d.output.Close() // the log is read through its path
	})
	return d
}

// start starts the double and waits until it accepts requests. The double removes ports that have no interface every
// second instead of every minute.
func (d *ovnDouble) start() {
	d.e.Helper()
	d.running = d.e.cluster.Command(context.Background(), d.program, "--node="+d.e.cluster.NodeName(), "--sweep=1s")
	d.running.Stdout, d.running.Stderr = d.output, d.output
	if err := d.e.cluster.StartCommand(d.running); err != nil {
		d.e.Fatal(err)
	}
	d.e.eventually("socket of OVN-Kubernetes", func(context.Context) (bool, error) {
		return len(d.e.filesOnNode(ovnkube.Socket)) == 1, nil
	})
}

// stop terminates the double with a signal. On SIGTERM, the double removes its socket. After SIGKILL, the socket still
// exists but has no listener.
func (d *ovnDouble) stop(signal syscall.Signal) {
	d.e.Helper()
	_ = d.running.Process.Signal(signal) // Wait reports whether it had already exited
	if err := d.running.Wait(); err != nil && signal != syscall.SIGKILL {
		d.e.Errorf("the double of OVN-Kubernetes failed: %v", err)
	}
}

// log returns the double's output.
func (d *ovnDouble) log() string { return strings.Join(d.e.lines(d.output.Name()), "\n") }

// hasPorts waits until the double's switch has the given number of ports.
func (d *ovnDouble) hasPorts(want int) {
	d.e.Helper()
	d.e.eventually(fmt.Sprintf("a switch with %d ports", want), func(context.Context) (bool, error) {
		ports := d.e.filesOnNode(ovnkube.State, "ports", "*")
		return len(ports) == want, fmt.Errorf("ports are %q", ports)
	})
}

// localnet creates the setup that an OVN-Kubernetes administrator prepares: the bridge br-int, with a link as the
// uplink to the physical network.
func (e *env) localnet(uplink, physicalNetwork string) {
	e.Helper()
	e.veth(uplink)
	if err := e.cluster.AddBridge("br-int", uplink); err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() {
		if err := e.cluster.DeleteLink("br-int"); err != nil {
			e.Error(err)
		}
	})
	handle, err := e.cluster.Netlink()
	if err != nil {
		e.Fatal(err)
	}
	defer handle.Close()
	bridge, err := handle.LinkByName("br-int")
	if err == nil {
		err = handle.LinkSetAlias(bridge, "ovn-bridge-mappings="+physicalNetwork+":br-int")
	}
	if err != nil {
		e.Fatal(err)
	}
}

// attachment returns a NetworkAttachmentDefinition for OVN-Kubernetes in the test's namespace.
func (e *env) attachment(name, network, more string) string {
	return fmt.Sprintf(`
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: %[2]s, namespace: %[1]s}
spec:
  config: '{"cniVersion": "0.4.0", "type": "ovn-k8s-cni-overlay", "name": %[3]q, %[4]s,
    "netAttachDefName": "%[1]s/%[2]s"}'
`, e.namespace, name, network, more)
}

// selecting returns a pod with an annotation that selects networks.
func selecting(pod, networks string) string {
	return strings.Replace(pod, "metadata: {",
		fmt.Sprintf("metadata: {annotations: {k8s.v1.cni.cncf.io/networks: %q}, ", networks), 1)
}

// ovnPolicy returns a policy that offers an uplink under the name of its physical network, as in example 9 of the
// published design.
func ovnPolicy(name, uplink string) string {
	return fmt.Sprintf(`
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: %s}
spec:
  priority: 150
  selector: {cel: 'device.attributes["dra.networking"].ifName == "%s"'}
  exposure:
    deviceNameSuffix: -localnet
    allowMultipleAllocations: true
    capacity: {connections: {value: "128", requestPolicy: {default: "1"}}}
    supportedCNIPlugins: [{name: ovn-k8s-cni-overlay, exclusive: false, consumePerAllocation: {connections: 1}}]
    additionalAttributes: {dra.networking/physicalNetworkName: localnet1}
`, name, uplink)
}

const localnetSelector = `selector: {cel: 'device.attributes["dra.networking"].?physicalNetworkName.orValue("") == "localnet1"'}`

// ping sends a ping from one pod to the address of an interface in another pod.
func (e *env) ping(sender, receiver, ifName, receiverIfName string) {
	e.Helper()
	peer := strings.Split(strings.Fields(e.inPod(receiver, "ip", "-4", "-o", "addr", "show", "dev",
		receiverIfName))[3], "/")[0]
	e.reaches(sender, ifName, peer)
}

// Two pods on a localnet can reach each other, each with its own veth. The uplink stays on the node. Only the
// NetworkAttachmentDefinition defines the network.
func TestOVNKubernetesLocalnet(t *testing.T) {
	e := newEnv(t, "localnet")
	e.localnet("ov0", "localnet1")
	e.ovnKubernetes()
	e.apply(e.attachment("tenant", "localnet-tenant", `"topology": "localnet", "physicalNetworkName": "localnet1",
    "mtu": 1390, "subnets": "10.108.0.0/24", "excludeSubnets": "10.108.0.0/30"`))
	e.apply(documents(ovnPolicy("ovn", "ov0"), topology("ovn", `
- name: net
  type: ovn-k8s-cni-overlay
  `+localnetSelector+`
  config: {netAttachDefName: "{{ pod.namespace }}/tenant"}
- name: tune
  type: tuning
  dependOn: [net]
  config: {mtu: 1380}`), claimTemplate("ovn", "ovn-net")))
	e.offer("ov0-localnet")
	pods := documents(selecting(pod("a", "ovn"), "tenant"), selecting(pod("b", "ovn"), "localnet/tenant"))
	e.apply(pods)
	e.ready("a", "b")
	for _, name := range []string{"a", "b"} {
		if shown := e.inPod(name, "ip", "addr", "show", "dev", "net1"); !containsAll(shown,
			[]string{"mtu 1380", "inet 10.108.0.", "/24", "link/ether 0a:58:0a:6c:00:0"}) {
			t.Errorf("net1 of %s has unexpected settings:\n%s", name, shown)
		}
		e.deviceStatus(name, `"interfaceName":"net1"`, `"10.108.0.`, `"type":"Ready"`, `"status":"True"`)
	}
	for _, path := range e.filesOnNode(ovnkube.State, "ports", "*") {
		if port := strings.Join(e.lines(path), ""); !containsAll(port,
			[]string{`"k8s.ovn.org/network":"localnet-tenant"`, `"k8s.ovn.org/nad":"localnet/tenant"`}) {
			t.Errorf("a port has an unexpected network: %s", port)
		}
	}
	e.ping("a", "b", "net1", "net1")
	e.link("ov0")
	e.remove(pods)
}

// Interfaces on a layer2 network have the names implied by their position in the pod's annotation or set there
// explicitly. Other interfaces in the pod do not use these names.
func TestOVNKubernetesLayer2(t *testing.T) {
	e := newEnv(t, "layertwo")
	e.localnet("ol0", "localnet1")
	e.ovnKubernetes()
	e.offerMacvlan("om0", "10.111.0.0/24")
	e.apply(e.attachment("tenant", "layertwo-tenant", `"topology": "layer2", "subnets": "10.110.0.0/24"`))
	e.apply(documents(ovnPolicy("ol", "ol0"), topology("ol", `
- name: net
  type: ovn-k8s-cni-overlay
  `+localnetSelector+`
  config: {netAttachDefName: layertwo/tenant}`), claimTemplate("ol", "om0-uplink", "ol-net"),
		claimTemplate("ol2", "ol-net", "ol-net")))
	e.offer("ol0-localnet")
	pods := documents(selecting(pod("first", "ol"), "tenant"), selecting(pod("second", "ol"), "another/network,tenant"),
		selecting(pod("named", "ol"), `[{"name": "tenant", "interface": "fast0"}]`),
		selecting(pod("twice", "ol2"), "tenant,tenant@fast0"))
	e.apply(pods)
	e.ready("first", "second", "named", "twice")
	for name, want := range map[string]map[string]string{
		"first": {"net1": "10.110.0.", "net2": "10.111.0."}, "second": {"net2": "10.110.0.", "net1": "10.111.0."},
		"named": {"fast0": "10.110.0.", "net1": "10.111.0."}, "twice": {"net1": "10.110.0.", "fast0": "10.110.0."},
	} {
		for ifName, subnet := range want {
			if shown := e.inPod(name, "ip", "addr", "show", "dev", ifName); !strings.Contains(shown, "inet "+subnet) {
				t.Errorf("%s of %s has an unexpected address:\n%s", ifName, name, shown)
			}
		}
	}
	e.ping("first", "second", "net1", "net2")
	e.ping("second", "named", "net2", "fast0")
	e.ping("named", "twice", "fast0", "fast0")
	e.remove(pods)
}

// If a pod cannot be attached, preparing its claim fails with the reason. The driver does not call the plugin, whose
// ADD would wait for two minutes and whose DEL would also fail. Once the missing object exists, the pod starts.
func TestOVNKubernetesRefusals(t *testing.T) {
	e := newEnv(t, "refusals")
	e.localnet("or0", "localnet1")
	double := e.ovnKubernetes()
	e.apply(e.attachment("tenant", "refusals-tenant", `"topology": "layer2", "subnets": "10.112.0.0/24"`))
	step := func(name, config string) string {
		return documents(topology(name, `
- name: net
  type: ovn-k8s-cni-overlay
  `+localnetSelector+`
  config: {`+config+`}`), claimTemplate(name, name+"-net"))
	}
	e.apply(documents(ovnPolicy("or", "or0"), step("or", "netAttachDefName: refusals/tenant"),
		step("ormissing", "netAttachDefName: refusals/missing"),
		step("ortwice", `netAttachDefName: refusals/tenant, subnets: 10.0.0.0/8`),
		strings.Replace(step("ornamed", "netAttachDefName: refusals/tenant"), "- name: net\n",
			"- name: net\n    ifName: fast0\n", 1)))
	e.offer("or0-localnet")
	pods := documents(pod("unselected", "or"), selecting(pod("elsewhere", "or"), "other/tenant"),
		selecting(pod("undefined", "ormissing"), "missing"), selecting(pod("contradiction", "ortwice"), "tenant"),
		selecting(pod("misnamed", "ornamed"), "tenant"))
	e.apply(pods)
	for name, texts := range map[string][]string{
		"unselected": {"PrepareFailed", "must select network refusals/tenant", "no such annotation"},
		"elsewhere":  {"PrepareFailed", "it selects other/tenant@net1; add refusals/tenant to the annotation"},
		"undefined":  {"PrepareFailed", "no such NetworkAttachmentDefinition"},
		"contradiction": {"PrepareFailed", "the step has subnets 10.0.0.0/8, and its NetworkAttachmentDefinition " +
			"10.112.0.0/24; remove it from the step"},
		"misnamed": {"PrepareFailed", "add refusals/tenant@fast0 to the annotation"},
	} {
		e.anyEvent(name, texts, slices.Concat([]string{"FailedPrepareDynamicResources"}, texts[1:]))
	}
	if said := double.log(); strings.Contains(said, "CNI request") {
		t.Errorf("the plugin was called, want no requests:\n%s", said)
	}
	if output, err := e.kubectl("", "annotate", "pod", "unselected", "k8s.v1.cni.cncf.io/networks=tenant"); err != nil {
		t.Fatal(err, output)
	}
	e.ready("unselected")
	e.remove(pods)
}

// An event for the pod reports an error that only the server can detect, and the pod leaves nothing behind.
func TestOVNKubernetesWithoutAMapping(t *testing.T) {
	e := newEnv(t, "unmapped")
	e.localnet("ou0", "localnet1")
	e.ovnKubernetes()
	e.apply(e.attachment("tenant", "unmapped-tenant", `"topology": "localnet", "physicalNetworkName": "elsewhere"`))
	e.apply(documents(ovnPolicy("ou", "ou0"), topology("ou", `
- name: net
  type: ovn-k8s-cni-overlay
  `+localnetSelector+`
  config: {netAttachDefName: unmapped/tenant}`), claimTemplate("ou", "ou-net")))
	e.offer("ou0-localnet")
	failing := selecting(pod("p", "ou"), "tenant")
	e.apply(failing)
	e.event("p", "NetworkAttachFailed", `step "net" (ovn-k8s-cni-overlay) of topology ou`,
		`failed to find OVN bridge-mapping for network: "elsewhere"`)
	e.remove(failing)
}

// If a device is passed to a localnet, an event for the pod reports an error. The built-in schema prevents this case,
// so this test replaces it with a schema written by an administrator.
func TestOVNKubernetesLocalnetWithADevice(t *testing.T) {
	e := newEnv(t, "localdevice")
	e.localnet("od0", "localnet1")
	e.ovnKubernetes()
	e.apply(e.attachment("net", "odl.net", `"topology": "localnet", "physicalNetworkName": "localnet1"`))
	e.refused(topology("odl", localnetStep(`, deviceID: "0000:41:10.0"`)), "spec.steps[0].config.deviceID")
	e.apply(`
apiVersion: networking.dra.io/v1alpha1
kind: CNIPluginSchema
metadata: {name: od}
spec: {cniType: ovn-k8s-cni-overlay}
`)
	e.apply(documents(ovnPolicy("od", "od0"), claimTemplate("od", "odl-net")))
	e.apply(topology("odl", localnetStep(`, deviceID: "0000:41:10.0"`)))
	e.offer("od0-localnet")
	failing := selecting(pod("p", "od"), "net")
	e.apply(failing)
	e.event("p", "NetworkAttachFailed", `step "net" (ovn-k8s-cni-overlay) of topology odl`,
		"failed in cmdAdd while getting Netdevice name: 0000:41:10.0 is no virtual function")
	e.remove(failing)
}

func localnetStep(more string) string {
	return `
- name: net
  type: ovn-k8s-cni-overlay
  ` + localnetSelector + `
  config: {topology: localnet, netAttachDefName: localdevice/net, physicalNetworkName: localnet1` + more + `}`
}

// In a standard OVN-Kubernetes installation, the node's default route goes through the bridge, and the shipped policy
// hides the uplink unless the chart's settings list it. While the OVN-Kubernetes server is down, pods can still
// terminate: the driver removes their interfaces without the plugin. After its restart, the server removes the ports of
// pods that have terminated and keeps the ports of running pods.
func TestOVNKubernetesServerIsDown(t *testing.T) {
	e := newEnv(t, "serverdown")
	e.localnet("ox0", "localnet1")
	for _, command := range [][]string{
		{"address", "add", "172.31.7.1/24", "dev", "br-int"}, {"link", "set", "br-int", "up"},
		{"route", "add", "default", "via", "172.31.7.254", "dev", "br-int"},
	} {
		e.onNode(append([]string{"ip"}, command...)...)
	}
	double := e.ovnKubernetes()
	e.apply(e.attachment("tenant", "serverdown-tenant", `"topology": "layer2", "subnets": "10.115.0.0/24"`))
	e.apply(documents(ovnPolicy("ox", "ox0"), topology("ox", `
- name: net
  type: ovn-k8s-cni-overlay
  `+localnetSelector+`
  config: {netAttachDefName: serverdown/tenant}`), claimTemplate("ox", "ox-net")))
	netdra, err := filepath.Abs("../../bin/netdra")
	if err != nil {
		t.Fatal(err)
	}
	e.eventually("uplink that the shipped policy hides", func(ctx context.Context) (bool, error) {
		output, err := e.cluster.Exec(ctx, netdra, "explain", "ox0")
		return strings.Contains(string(output), "exclude-infrastructure excludes it"), fmt.Errorf("%w: %s", err, output)
	})
	e.deployWithPolicies("defaultPolicies.openVSwitchUplinks={ox0}")
	e.offer("ox0-localnet")
	e.create(selecting(pod("stays", "ox"), "tenant"))
	e.create(selecting(pod("goes", "ox"), "tenant"))
	e.ready("stays", "goes")
	e.ping("stays", "goes", "net1", "net1")
	double.stop(syscall.SIGKILL)
	e.deleting("goes")
	e.gone("goes")
	double.hasPorts(2)
	double.start()
	double.hasPorts(1)
	if shown := e.inPod("stays", "ip", "address", "show", "dev", "net1"); !strings.Contains(shown, "inet 10.115.0.") {
		t.Errorf("want an address in 10.115.0.0/24 on net1 of the remaining pod, got\n%s", shown)
	}
	e.deleting("stays")
	e.gone("stays")
}
