package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// extendedPod returns a pod as users write it for a device plugin, with resource limits but no claims. A container is
// given as "name: {resource: count}". Containers with the prefix "init " exit immediately.
func extendedPod(name string, containers ...string) string {
	var init, regular string
	for _, container := range containers {
		title, limits, _ := strings.Cut(container, ": ")
		list, command := &regular, `sleep, "86400"`
		if short, isInit := strings.CutPrefix(title, "init "); isInit {
			list, title, command = &init, short, `"true"`
		}
		*list += fmt.Sprintf(`
  - name: %s
    image: localhost/toolbox:e2e
    imagePullPolicy: IfNotPresent
    command: [%s]
    resources: {limits: %s}`, title, command, limits)
	}
	if init != "" {
		init = "\n  initContainers:" + init
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  automountServiceAccountToken: false%s
  containers:%s
`, name, init, regular)
}

// classResource returns the extended resource that Kubernetes defines for every class.
func classResource(class string) string { return "deviceclass.resource.kubernetes.io/" + class }

// offerExtended creates a macvlan uplink "NAME0" with the extended resource example.com/NAME, and the links "NAME1" and
// "NAME2", which are offered as a whole without an explicit resource name.
func (e *env) offerExtended(name string, network int) {
	e.Helper()
	for _, number := range []string{"0", "1", "2"} {
		e.veth(name + number)
	}
	e.apply(documents(expose(name+"0", "macvlan", true, name+"0"),
		expose(name+"1", "host-device", false, name+"1", name+"2"),
		topology(name, fmt.Sprintf(`
- name: uplink
  type: macvlan
  extendedResourceName: example.com/%[1]s
  selector: {cel: 'device.attributes["dra.networking"].ifName == "%[1]s0"'}
  config: {ipam: {type: host-local, subnet: 10.%[2]d.0.0/24}}`, name, network)),
		topology(name+"-whole", fmt.Sprintf(`
- name: link
  type: host-device
  selector: {cel: 'device.attributes["dra.networking"].ifName in ["%[1]s1", "%[1]s2"]'}
  config: {ipam: {type: host-local, subnet: 10.%[2]d.1.0/24}}`, name, network))))
	e.offer(name+"0", name+"1", name+"2")
}

// Pods that were written for a device plugin get interfaces from topologies, whether they use the resource name in the
// topology or the resource name that Kubernetes defines for the class. This also works while a pod with a user-created
// claim is running.
func TestExtendedResources(t *testing.T) {
	e := newEnv(t, "extended")
	e.offerExtended("er", 181)
	e.create(documents(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: made-by-a-user}
spec:
  devices:
    requests: [{name: r0, exactly: {deviceClassName: er-uplink}}]
`, strings.Replace(pod("user", "x"), "resourceClaimTemplateName: x", "resourceClaimName: made-by-a-user", 1)))
	e.ready("user")
	e.create(documents(extendedPod("named", `main: {example.com/er: 1}`),
		extendedPod("by-class", fmt.Sprintf(`main: {%s: 1}`, classResource("er-uplink"))),
		extendedPod("whole", fmt.Sprintf(`main: {%s: 2, example.com/er: 1}`, classResource("er-whole-link")))))
	e.ready("named", "by-class", "whole")
	for _, name := range []string{"named", "by-class"} {
		if shown := e.inPod(name, "ip", "-4", "-o", "addr", "show", "dev", "net1"); !strings.Contains(shown,
			"inet 10.181.0.") {
			t.Errorf("want an address in 10.181.0.0/24 on net1 of pod %s, got\n%s", name, shown)
		}
		e.deviceStatus(name, `"interfaceName":"net1"`, `"type":"Ready"`, `"status":"True"`)
	}
	var addresses []string
	for line := range strings.Lines(e.inPod("whole", "ip", "-4", "-o", "addr")) {
		if fields := strings.Fields(line); strings.HasPrefix(fields[1], "net") {
			addresses = append(addresses, fields[1]+" "+fields[3][:len("10.181.0.")])
		}
	}
	slices.Sort(addresses)
	if len(addresses) != 3 || !containsAll(strings.Join(addresses, ","), []string{"10.181.1.", "10.181.0."}) {
		t.Errorf("addresses of a pod with two whole links and an interface = %q, want three", addresses)
	}
	if output, err := e.netdra("claims"); err != nil || !containsAll(output, []string{"named-extended-resources-",
		"whole-extended-resources-", "net3"}) {
		t.Errorf("netdra claims returned %v\n%s", err, output)
	}
	e.deleting("named", "by-class", "whole", "user")
	e.gone("named", "by-class", "whole", "user")
	e.deleteClaims("made-by-a-user")
}

// Each container gets exactly the devices that it requests, regardless of what other containers in the pod request: the
// kubelet receives one CDI device for each request. Interfaces belong to the whole pod, so init containers also use the
// interfaces that later containers requested.
func TestExtendedResourcesOfContainers(t *testing.T) {
	e := newEnv(t, "excontainers")
	e.offerExtended("ec", 182)
	e.create(extendedPod("p", `init first: {example.com/ec: 1}`, `a: {example.com/ec: 1}`,
		fmt.Sprintf(`b: {%s: 1}`, classResource("ec-whole-link")), `c: {example.com/ec: 1}`, `none: {}`))
	e.ready("p")
	claim := e.extendedClaim("p")
	for container, want := range map[string]bool{"a": true, "b": true, "c": true, "none": false} {
		output, err := e.kubectl("", "exec", "p", "-c", container, "--", "sh", "-c", "env; ip -o link")
		if err != nil || !containsAll(output, []string{"net1", "net2", "net3"}) {
			t.Errorf("container %s does not have all three interfaces: %v\n%s", container, err, output)
		}
		if got := strings.Contains(output, "DRA_NETWORK_CLAIM_"); got != want {
			t.Errorf("container %s has the claim's variables: %v, want %v", container, got, want)
		}
	}
	data, err := os.ReadFile(e.fileOnNode("/run/cdi", "dra.networking-"+claim+".json"))
	var gate struct{ Devices []struct{ Name string } }
	if err == nil {
		err = json.Unmarshal(data, &gate)
	}
	var names, want []string
	for _, device := range gate.Devices {
		names = append(names, device.Name)
	}
	slices.Sort(names)
	for _, prefix := range []string{"not-attached-yet.", "when-attached."} { // ADR 35
		for _, part := range []string{"", ".container-1-request-0", ".container-2-request-0", ".container-3-request-0"} {
			want = append(want, prefix+claim+part)
		}
	}
	if err != nil || !slices.Equal(names, want) {
		t.Errorf("the gate of the claim has devices %q (%v), want %q", names, err, want)
	}
	e.deleting("p")
	e.gone("p")
}

// extendedClaim returns the UID of the claim that kube-scheduler has created for a pod's extended resources.
func (e *env) extendedClaim(pod string) string {
	e.Helper()
	found, err := e.client.CoreV1().Pods(e.namespace).Get(context.Background(), pod, metav1.GetOptions{})
	if err != nil || found.Status.ExtendedResourceClaimStatus == nil {
		e.Fatalf("pod %s has no claim for extended resources: %v", pod, err)
	}
	name := found.Status.ExtendedResourceClaimStatus.ResourceClaimName
	claim, err := e.client.ResourceV1().ResourceClaims(e.namespace).Get(context.Background(), name,
		metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	return string(claim.UID)
}

// The driver rejects a topology that needs a second device, and a topology that the namespace is not permitted to use.
// An event for the pod reports the reason. A pod that requests both devices gets the topology.
func TestExtendedResourcesThatAreRefused(t *testing.T) {
	e := newEnv(t, "exrefused")
	e.veth("ex0")
	step := `
- name: %s
  type: macvlan
  selector: {cel: 'device.attributes["dra.networking"].ifName == "ex0"'}`
	single := fmt.Sprintf(step, "a")
	e.apply(documents(expose("ex0", "macvlan", true, "ex0"), topology("ex-pair", single+fmt.Sprintf(step, "b")),
		strings.Replace(topology("ex-theirs", single), "  steps:",
			"  allowedNamespaces: {matchLabels: {team: nobody}}\n  steps:", 1),
		topology("ex-first", single+"\n  extendedResourceName: example.com/ex")))
	e.offer("ex0")
	e.condition("ex-first", "ClassesReady=True", "can request the extended resources: example.com/ex")
	e.apply(topology("ex-second", single+"\n  extendedResourceName: example.com/ex"))
	e.condition("ex-second", "ClassesReady=False ExtendedResourceTaken",
		"example.com/ex (DeviceClass ex-first-a of NetworkTopology ex-first)")
	if output, err := e.kubectl(topology("ex-first", single), "apply", "-f", "-"); err != nil {
		t.Fatal(err, output)
	}
	e.condition("ex-second", "ClassesReady=True", "can request the extended resources: example.com/ex")
	e.condition("ex-first", "ClassesReady=True", "one request for each of: ex-first-a\n")
	half := fmt.Sprintf(`main: {%s: 1}`, classResource("ex-pair-a"))
	e.create(documents(extendedPod("half", half),
		extendedPod("pair", half, fmt.Sprintf(`other: {%s: 1}`, classResource("ex-pair-b"))),
		extendedPod("theirs", fmt.Sprintf(`main: {%s: 1}`, classResource("ex-theirs-a")))))
	e.event("half", "the extended resources of the pod request ex-pair-a of the NetworkTopology ex-pair",
		"add to the pod the limits deviceclass.resource.kubernetes.io/ex-pair-b")
	e.event("theirs", "the NetworkTopology ex-theirs may not be used in the namespace exrefused")
	e.ready("pair")
	if shown := e.inPod("pair", "ip", "-o", "link"); !containsAll(shown, []string{"net1", "net2"}) {
		t.Errorf("want net1 and net2 in the pod with both devices, got\n%s", shown)
	}
	e.deleting("half", "pair", "theirs")
	e.gone("half", "pair", "theirs")
}

// netdra reports the same information for a pod with extended resources as for a pod with claims. Before kube-scheduler
// has processed the pod, netdra reports whether the pod would fit. While the pod is pending, netdra reports what it is
// waiting for, including a denied claim. Once the pod is running, netdra reports the device.
func TestExtendedResourcesAreExplained(t *testing.T) {
	e := newEnv(t, "exexplained")
	e.veth("et0")
	e.veth("et1")
	step := `
- name: %s
  type: macvlan
  selector: {cel: 'device.attributes["dra.networking"].ifName == "et1"'}`
	e.apply(documents(expose("et0", "host-device", false, "et0"), expose("et1", "macvlan", true, "et1"),
		topology("et", `
- name: link
  type: host-device
  extendedResourceName: example.com/et
  selector: {cel: 'device.attributes["dra.networking"].ifName == "et0"'}
  config: {ipam: {type: host-local, subnet: 10.183.0.0/24}}`),
		topology("et-pair", fmt.Sprintf(step, "a")+fmt.Sprintf(step, "b")),
		strings.Replace(topology("et-theirs", fmt.Sprintf(step, "a")), "  steps:",
			"  allowedNamespaces: {matchLabels: {team: nobody}}\n  steps:", 1)))
	e.offer("et0", "et1")
	e.condition("et", "ClassesReady=True", "can request the extended resources: example.com/et")
	e.condition("et-pair", "ClassesReady=True")
	e.condition("et-theirs", "ClassesReady=True")
	says := func(command, pod string, texts ...string) {
		t.Helper()
		object := map[string][]string{"simulate": {"--pod", e.namespace + "/" + pod},
			"explain": {"-n", e.namespace, "pod/" + pod}, "claims": {"-n", e.namespace, "pod/" + pod}}[command]
		output, err := e.elsewhere(e.cluster.Kubeconfig(), append([]string{command}, object...)...)
		if !containsAll(output, texts) {
			t.Errorf("the output of netdra %s for pod %s lacks one of %q: %v\n%s", command, pod, texts, err, output)
		}
	}
	const unscheduled = `the pod is not scheduled; for the reason, run "netdra simulate --pod exexplained/`
	wants := `main: {example.com/et: 1}`
	e.create(strings.Replace(extendedPod("gated", wants), "spec:",
		"spec:\n  schedulingGates: [{name: example.com/wait}]", 1))
	says("simulate", "gated", "✓ pod exexplained/gated fits on "+e.cluster.NodeName(), "gated-extended-resources",
		"container-0-request-0", "et0")
	says("explain", "gated", unscheduled)

	e.create(extendedPod("first", wants))
	e.ready("first")
	says("explain", "first", "et0", "exexplained/first-extended-resources-")
	says("claims", "first", "exexplained/first-extended-resources-", "attached", "10.183.0.")
	says("simulate", "first", "all claims of pod exexplained/first have their devices, and it is running")

	e.create(extendedPod("second", fmt.Sprintf(`main: {%s: 1}`, classResource("et-link"))))
	e.event("second", "FailedScheduling")
	for _, pending := range []string{"gated", "second"} {
		says("simulate", pending, "pod exexplained/"+pending+" does not fit", "other claims hold the required devices",
			"It fits when this claim is released: exexplained/first-extended-resources-")
		says("explain", pending, unscheduled)
	}

	e.create(documents(extendedPod("half", fmt.Sprintf(`main: {%s: 1}`, classResource("et-pair-a"))),
		extendedPod("theirs", fmt.Sprintf(`main: {%s: 1}`, classResource("et-theirs-a")))))
	e.event("half", "the extended resources of the pod request et-pair-a")
	e.event("theirs", "the NetworkTopology et-theirs may not be used in the namespace exexplained")
	says("simulate", "half", "but is refused:", `has no device for root step "b"`,
		"set the limit deviceclass.resource.kubernetes.io/<deviceClassName> in the pod")
	says("simulate", "theirs", "but is refused:",
		"NetworkTopology et-theirs may not be used in namespace exexplained")
	says("explain", "theirs", unscheduled)

	e.deleting("first")
	e.ready("second") // as predicted by simulate
	says("explain", "second", "et0", "exexplained/second-extended-resources-")
	e.deleting("gated", "second", "half", "theirs")
	e.gone("gated", "first", "second", "half", "theirs")
}

// If addresses can be set only in claims, pods with an extended resource are rejected, because they have no claim in
// which to set addresses. The topology must not define a resource name, and the resource name that Kubernetes defines
// for its class does not work either. A pod with a claim that sets the addresses works.
func TestExtendedResourcesWithoutAddresses(t *testing.T) {
	e := newEnv(t, "exaddresses")
	e.veth("ea0")
	e.apply(documents(expose("ea0", "macvlan", true, "ea0"), `
apiVersion: networking.dra.io/v1alpha1
kind: CNIPluginSchema
metadata: {name: static}
spec: {cniType: static, capabilities: [ips], output: {interfaces: none}}
`))
	e.offer("ea0")
	chosen := topology("ea", `
- name: port
  type: macvlan
  selector: {cel: 'device.attributes["dra.networking"].ifName == "ea0"'}
  claimParameters: [ips]
  config: {ipam: {type: static}}`)
	e.eventually("the webhook knows the schema", func(context.Context) (bool, error) {
		output, err := e.kubectl(chosen, "apply", "--dry-run=server", "-f", "-")
		return err == nil, errors.New(output)
	})
	e.apply(chosen)
	e.condition("ea", "ClassesReady=True")
	named := strings.Replace(strings.Replace(chosen, "metadata: {name: ea}", "metadata: {name: ea-named}", 1),
		"    type: macvlan", "    type: macvlan\n    extendedResourceName: example.com/ea", 1)
	if output, err := e.kubectl(named, "apply", "-f", "-"); err == nil || !containsAll(output, []string{
		"extendedResourceName: Forbidden", `step "port" gets addresses from claims only`}) {
		t.Errorf("unexpected result of a topology with extendedResourceName: %v\n%s", err, output)
	}
	withIPs := strings.Replace(claimTemplate("with", "ea-port"), "devices:", "devices:\n      config: [{opaque: "+
		"{driver: dra.networking, parameters: {ips: [10.185.0.7/24]}}}]", 1)
	e.create(documents(extendedPod("limits", fmt.Sprintf(`main: {%s: 1}`, classResource("ea-port"))),
		withIPs, pod("with", "with"), claimTemplate("without", "ea-port"), pod("without", "without")))
	e.ready("with")
	if shown := e.inPod("with", "ip", "-4", "-o", "addr", "show", "dev", "net1"); !strings.Contains(shown,
		"inet 10.185.0.7/24") {
		t.Errorf("want 10.185.0.7/24 on net1, got\n%s", shown)
	}
	e.event("limits", "the extended resources of the pod request ea-port of the NetworkTopology ea",
		"its steps port get addresses from claims only", "name such a claim in the pod instead of these limits")
	const missing = `has no ips for step "port", which gets addresses from claims only`
	e.event("without", "claim exaddresses/without-net-", missing)
	if output, err := e.elsewhere(e.cluster.Kubeconfig(), "simulate", "--pod", e.namespace+"/limits"); err == nil ||
		!containsAll(output, []string{"but is refused:", missing}) {
		t.Errorf("netdra simulate returned %v\n%s", err, output)
	}
	e.deleting("with", "without", "limits")
	e.gone("with", "without", "limits")
}

// condition waits until a topology has a condition, given as "Type=Status Reason", whose message contains all texts.
func (e *env) condition(topology, condition string, texts ...string) {
	e.Helper()
	e.eventually(fmt.Sprintf("NetworkTopology %s has %s", topology, condition), func(context.Context) (bool, error) {
		output, err := e.kubectl("", "get", "networktopology", topology, "-o",
			`jsonpath={range .status.conditions[*]}{.type}={.status} {.reason}: {.message}{"\n"}{end}`)
		for line := range strings.Lines(output) {
			if strings.HasPrefix(line, condition) && containsAll(line, texts) {
				return true, nil
			}
		}
		return false, fmt.Errorf("%v: %s", err, output) //nolint:errorlint // there may be no error
	})
}
