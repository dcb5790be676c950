package suite

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMacvlanWithTuning(t *testing.T) {
	e := newEnv(t, "macvlan")
	e.veth("mv0")
	e.apply(documents(expose("mv0", "macvlan", true, "mv0"), topology("mv", `
- name: uplink
  type: macvlan
  selector: {cel: 'device.attributes["dra.networking"].ifName == "mv0"'}
  config: {mode: bridge, ipam: {type: host-local, subnet: 10.101.0.0/24}}
- name: tune
  type: tuning
  dependOn: [uplink]
  config: {mtu: 1402}`), claimTemplate("mv", "mv-uplink")))
	e.offer("mv0")
	e.apply(pod("p", "mv"))
	e.ready("p")
	if shown := e.inPod("p", "ip", "addr", "show", "dev", "net1"); !containsAll(shown,
		[]string{"mtu 1402", "inet 10.101.0.2/24"}) {
		t.Errorf("net1 has unexpected settings:\n%s", shown)
	}
	e.deviceStatus("p", `"interfaceName":"net1"`, `"10.101.0.2/24"`, `"type":"Ready"`, `"status":"True"`)
	e.showsHealthy("p", "dra.networking/interfaces=when-attached.")
	// Check the device metadata inside the container (KEP-5304).
	if metadata := e.inPod("p", "sh", "-c",
		"cat /var/run/kubernetes.io/dra-device-attributes/*/*/*/dra.networking-metadata.json"); !containsAll(strings.Join(strings.Fields(metadata), ""),
		[]string{`"interfaceName":"net1"`, `"10.101.0.2/24"`, `"dra.networking/ifName":{"string":"mv0"}`,
			`"apiVersion":"metadata.resource.k8s.io/v1beta1"`, `"apiVersion":"metadata.resource.k8s.io/v1alpha1"`}) {
		t.Errorf("the metadata in the container is incomplete:\n%s", metadata)
	}
	logs := e.filesOnNode("/var/log/dra-network", "macvlan_p-net-*", "*.jsonl")
	if len(logs) != 1 {
		t.Fatalf("CNI logs = %v, want one", logs)
	}
	text, err := os.ReadFile(logs[0])
	if err != nil || strings.Count(string(text), "\n") != 2 ||
		!containsAll(string(text), []string{`"step":"uplink"`, `"step":"tune"`, `"command":"ADD"`}) {
		t.Errorf("CNI log = %s, %v; want an ADD for each step", text, err)
	}
}

// showsHealthy waits until a pod's status reports a resource with the given ID prefix as healthy (KEP-4680).
func (e *env) showsHealthy(name, prefix string) {
	e.Helper()
	e.eventually(name+" shows a healthy "+prefix, func(ctx context.Context) (bool, error) {
		pod, err := e.client.CoreV1().Pods(e.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil || len(pod.Status.ContainerStatuses) == 0 {
			return false, err
		}
		for _, status := range pod.Status.ContainerStatuses[0].AllocatedResourcesStatus {
			for _, resource := range status.Resources {
				if strings.HasPrefix(string(resource.ResourceID), prefix) {
					return resource.Health == corev1.ResourceHealthStatusHealthy, nil
				}
			}
		}
		return false, fmt.Errorf("the resources in the pod's status are %v",
			pod.Status.ContainerStatuses[0].AllocatedResourcesStatus)
	})
}

func TestWholeLinkComesHome(t *testing.T) {
	e := newEnv(t, "whole")
	e.veth("wl0")
	before := e.link("wl0")
	e.apply(documents(expose("wl0", "host-device", false, "wl0"), topology("wl", `
- name: link
  type: host-device
  selector: {cel: 'device.attributes["dra.networking"].ifName == "wl0"'}
  config: {ipam: {type: host-local, subnet: 10.102.0.0/24}}`), claimTemplate("wl", "wl-link")))
	e.offer("wl0")
	generation := e.versions("wl0")
	manifest := pod("p", "wl")
	e.apply(manifest)
	e.ready("p")
	if _, err := e.cluster.Exec(context.Background(), "ip", "link", "show", "wl0"); err == nil {
		t.Error("the link is still on the node, want it in the pod")
	}
	if shown := e.inPod("p", "ip", "addr", "show", "dev", "net1"); !containsAll(shown, []string{"inet 10.102.0.2/24"}) {
		t.Errorf("net1 has unexpected settings:\n%s", shown)
	}
	e.remove(manifest)
	if after := e.link("wl0"); mac(after) != mac(before) || !strings.Contains(after, ",UP") {
		t.Errorf("the link was restored as\n%s\nwant\n%s", after, before)
	}
	e.unchanged("wl0", generation)
}

// versions returns the slices in a device's pool, each with its resource version.
func (e *env) versions(device string) string {
	slices, err := e.client.ResourceV1().ResourceSlices().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		e.Fatal(err)
	}
	var all []string
	for _, slice := range slices.Items {
		if slice.Spec.Pool.Name == e.cluster.NodeName()+"/"+device {
			all = append(all, fmt.Sprintf("%s@%s", slice.Name, slice.ResourceVersion))
		}
	}
	return strings.Join(all, " ")
}

// unchanged checks that a pool has not been written since versions was called. The publication of a later change on the
// host proves that all earlier changes have been processed.
func (e *env) unchanged(device, versions string) {
	e.Helper()
	marker := "m" + device
	e.veth(marker)
	e.apply(expose(marker, "host-device", false, marker))
	e.offer(marker)
	if now := e.versions(device); now != versions || now == "" {
		e.Errorf("the slices of %s changed after a pod came and went: now %s, before %s", device, now,
			versions)
	}
}

func mac(shown string) string {
	fields := strings.Fields(shown)
	for i, field := range fields {
		if field == "link/ether" && i+1 < len(fields) {
			return fields[i+1]
		}
	}
	return "none in " + shown
}

func TestBridge(t *testing.T) {
	e := newEnv(t, "bridge")
	if err := e.cluster.AddBridge("tbr0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.cluster.DeleteLink("tbr0"); err != nil {
			t.Error(err)
		}
	})
	e.apply(documents(expose("tbr0", "bridge", true, "tbr0"), topology("tbr", `
- name: port
  type: bridge
  selector: {cel: 'device.attributes["dra.networking"].type == "bridge" && device.attributes["dra.networking"].ifName == "tbr0"'}
  ifName: data0
  config: {ipam: {type: host-local, subnet: 10.103.0.0/24}}`), claimTemplate("tbr", "tbr-port")))
	e.offer("tbr0")
	versions := e.versions("tbr0")
	pods := documents(pod("a", "tbr"), pod("b", "tbr"))
	e.apply(pods)
	e.ready("a", "b")
	peer := strings.Split(strings.Fields(e.inPod("b", "sh", "-c", "ip -4 -o addr show dev data0"))[3], "/")[0]
	e.reaches("a", "data0", peer)
	e.remove(pods)
	e.unchanged("tbr0", versions)
}

// A container that does not reference the claim shares the pod's network, so it also waits for the claim.
func TestSidecarThatDoesNotNameTheClaim(t *testing.T) {
	e := newEnv(t, "sidecar")
	e.offerMacvlan("sc0", "10.105.0.0/24")
	e.apply(strings.TrimRight(pod("p", "sc0"), "\n") + `
  initContainers:
  - name: sidecar
    restartPolicy: Always
    image: localhost/toolbox:e2e
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "ip -o link show net1 >/seen && sleep 86400"]
`)
	e.ready("p")
	if output, err := e.kubectl("", "exec", "p", "-c", "sidecar", "--", "cat", "/seen"); err != nil ||
		!strings.Contains(output, "net1") {
		t.Errorf("the sidecar reported %q on startup (%v), want net1", output, err)
	}
}

// If a pod has two claims, its interfaces are numbered in the order of its resourceClaims.
func TestTwoClaimsOfOnePod(t *testing.T) {
	e := newEnv(t, "twoclaims")
	e.veth("tc0")
	e.veth("tc1")
	step := `
- name: uplink
  type: macvlan
  selector: {cel: 'device.attributes["dra.networking"].ifName == "%s"'}
  config: {ipam: {type: host-local, subnet: 10.%d.0.0/24}}`
	e.apply(documents(expose("tc", "macvlan", true, "tc0", "tc1"),
		topology("tca", fmt.Sprintf(step, "tc0", 106)), topology("tcb", fmt.Sprintf(step, "tc1", 107)),
		claimTemplate("a", "tca-uplink"), claimTemplate("b", "tcb-uplink")))
	e.offer("tc0", "tc1")
	e.apply(strings.NewReplacer(
		"[{name: net, resourceClaimTemplateName: b}]", "[{name: second, resourceClaimTemplateName: b}, {name: first, "+
			"resourceClaimTemplateName: a}]",
		"[{name: net}]", "[{name: first}, {name: second}]").Replace(pod("p", "b")))
	e.ready("p")
	shown := e.inPod("p", "ip", "-4", "-o", "addr")
	if !strings.Contains(shown, "net1    inet 10.107.") || !strings.Contains(shown, "net2    inet 10.106.") {
		t.Errorf("want net1 in 10.107.0.0/24 and net2 in 10.106.0.0/24, got\n%s", shown)
	}
}
