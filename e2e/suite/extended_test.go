package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// extendedPod is a pod as people write it for a device plugin: containers with limits, and nothing else. A container is
// written as "name: {resource: count}"; those that begin with "init " end at once.
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

// classResource is the extended resource that every class has.
func classResource(class string) string { return "deviceclass.resource.kubernetes.io/" + class }

// offerExtended makes a macvlan uplink "NAME0" with the extended resource example.com/NAME, and the whole links "NAME1"
// and "NAME2" without a name of their own.
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

// Pods written for a device plugin get interfaces of topologies: by the name that the topology gives its devices, and
// by that which Kubernetes gives the class; also beside a running pod with a claim that a user made.
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
			t.Errorf("net1 of pod %s is\n%s", name, shown)
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
		t.Errorf("a pod with two whole links and an interface has %q", addresses)
	}
	if output, err := e.netdra("claims"); err != nil || !containsAll(output, []string{"named-extended-resources-",
		"whole-extended-resources-", "net3"}) {
		t.Errorf("netdra claims: %v\n%s", err, output)
	}
	e.deleting("named", "by-class", "whole", "user")
	e.gone("named", "by-class", "whole", "user")
	e.deleteClaims("made-by-a-user")
}

// Each container gets what it asks for and no more, whatever the pod has: kubelet is given a CDI device for each
// request. The interfaces are the pod's, and init containers use those of later containers.
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
			t.Errorf("container %s sees %v\n%s", container, err, output)
		}
		if got := strings.Contains(output, "DRA_NETWORK_CLAIM_"); got != want {
			t.Errorf("container %s has the claim's devices: %v, want %v", container, got, want)
		}
	}
	data, err := os.ReadFile(e.fileOnNode("/run/cdi", "dra.networking-"+claim+".json"))
	var gate struct{ Devices []struct{ Name string } }
	if err == nil {
		err = json.Unmarshal(data, &gate)
	}
	var names []string
	for _, device := range gate.Devices {
		names = append(names, strings.TrimPrefix(device.Name, "not-attached-yet."+claim))
	}
	slices.Sort(names)
	want := []string{"", ".container-1-request-0", ".container-2-request-0", ".container-3-request-0"}
	if err != nil || !slices.Equal(names, want) {
		t.Errorf("the gate of the claim has the devices %q, %v, want %q", names, err, want)
	}
	e.deleting("p")
	e.gone("p")
}

// extendedClaim returns the UID of the claim that kube-scheduler has made for a pod's extended resources.
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

// What can't be attached is refused, and the pod is told why: a topology that needs a second device, and a topology
// that the namespace may not use. With both devices a pod gets the topology.
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
	e.condition("ex-first", "ClassesReady=True", "asks for the extended resources: example.com/ex")
	e.apply(topology("ex-second", single+"\n  extendedResourceName: example.com/ex"))
	e.condition("ex-second", "ClassesReady=False ExtendedResourceTaken",
		"example.com/ex (DeviceClass ex-first-a of NetworkTopology ex-first)")
	if output, err := e.kubectl(topology("ex-first", single), "apply", "-f", "-"); err != nil {
		t.Fatal(err, output)
	}
	e.condition("ex-second", "ClassesReady=True", "asks for the extended resources: example.com/ex")
	e.condition("ex-first", "ClassesReady=True", "one request for each of: ex-first-a\n")
	half := fmt.Sprintf(`main: {%s: 1}`, classResource("ex-pair-a"))
	e.create(documents(extendedPod("half", half),
		extendedPod("pair", half, fmt.Sprintf(`other: {%s: 1}`, classResource("ex-pair-b"))),
		extendedPod("theirs", fmt.Sprintf(`main: {%s: 1}`, classResource("ex-theirs-a")))))
	e.event("half", "the extended resources of the pod ask for ex-pair-a of the NetworkTopology ex-pair",
		"add to the pod the limits deviceclass.resource.kubernetes.io/ex-pair-b")
	e.event("theirs", "the NetworkTopology ex-theirs may not be used in the namespace exrefused")
	e.ready("pair")
	if shown := e.inPod("pair", "ip", "-o", "link"); !containsAll(shown, []string{"net1", "net2"}) {
		t.Errorf("the pod with both devices has\n%s", shown)
	}
	e.deleting("half", "pair", "theirs")
	e.gone("half", "pair", "theirs")
}

// condition waits until a topology has a condition, written as "Type=Status Reason", with all the texts.
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
		return false, fmt.Errorf("%v: %s", err, output) //nolint:errorlint // there may be none
	})
}
