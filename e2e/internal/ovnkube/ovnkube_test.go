package ovnkube

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	testingclock "k8s.io/utils/clock/testing"
)

func podOf(name, networks, addresses string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name),
		Annotations: map[string]string{}}, Spec: corev1.PodSpec{NodeName: "n"}}
	if networks != "" {
		pod.Annotations[networksAnnotation] = networks
	}
	if addresses != "" {
		pod.Annotations[podNetworksAnnotation] = addresses
	}
	return pod
}

func TestNADKey(t *testing.T) {
	for _, test := range []struct{ networks, ifName, want string }{
		{"net", "net1", "ns/net"},
		{"net", "net2", ""},
		{"other/x,net", "net2", "ns/net"},
		{"other/x,net", "net1", ""},
		{"ns/net@fast0", "fast0", "ns/net"},
		{"ns/net@fast0", "net1", ""},
		{"net,net", "net2", "ns/net/1"},
		{`[{"name": "net", "interface": "a"}, {"name": "net"}]`, "net2", "ns/net/1"},
		{"", "net1", ""},
		{"[", "net1", ""},
		{"net,Bad_Name", "net1", ""},
	} {
		got, err := nadKey(podOf("p", test.networks, ""), test.ifName, "ns/net")
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("key of %s in %q = %q, %v; want %q", test.ifName, test.networks, got, err, test.want)
		}
	}
}

// Pods are not assigned addresses on networks that the controllers reject.
func TestNetworks(t *testing.T) {
	const ovn = `"type": "ovn-k8s-cni-overlay", "name": "net", "netAttachDefName": "ns/net", `
	for config, problem := range map[string]string{
		ovn +
			`"topology": "localnet", "physicalNetworkName": "phys", "subnets": "192.0.2.0/24", "role": "secondary"`: "",
		ovn + `"topology": "layer2", "subnets": "192.0.2.0/24, 2001:db8::/64", "excludeSubnets": "192.0.2.0/28"`: "",
		ovn + `"topology": "layer3", "subnets": "10.128.0.0/14/23"`:                                              "",
		`"type": "macvlan"`: `type "macvlan" is not managed by OVN`,
		`"type": "ovn-k8s-cni-overlay", "topology": "layer2"`:    "missing NADName",
		ovn + `"topology": "layer2", "name": "default"`:          "invalid name",
		ovn + `"topology": "layer2", "netAttachDefName": "ns/x"`: "inconsistent with config",
		ovn + `"topology": "mesh"`:                               "topology must be",
		ovn + `"topology": "layer2", "role": "primary"`:          "no primary networks",
		ovn + `"topology": "layer2", "ipam": {"type": "static"}`: "IPAM key is not supported",
		ovn + `"topology": "layer3", "physicalNetworkName": "p"`: "only a localnet",
		ovn + `"topology": "layer3", "allowPersistentIPs": true`: "persistent",
		ovn + `"topology": "localnet", "joinSubnet": "x"`:        "joinSubnet",
		ovn + `"topology": "localnet", "vlanID": 7`:              "no VLANs",
		ovn + `"topology": "layer2", "excludeSubnets": "a"`:      "excludeSubnets needs subnets",
		ovn + `"topology": "layer2", "subnets": "10.0.0.0/8/23"`: "is not a subnet",
	} {
		_, err := parseNetwork("ns/net", []byte("{"+config+"}"))
		if (err == nil) != (problem == "") || err != nil && !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: error = %v, want %q", config, err, problem)
		}
	}
}

func TestMappings(t *testing.T) {
	for list, want := range map[string]bool{
		"net:br-ex": true, "a:b,net:br-ex": true, "": false, "other:br-ex": false, "net": false, "other:net": false,
	} {
		if got := isMapped(list, "net"); got != want {
			t.Errorf("with mappings %q, the network is mapped: %t", list, got)
		}
	}
}

const layer2Conf = `{"cniVersion": "1.0.0", "type": "ovn-k8s-cni-overlay", "name": "tenant", "topology": "layer2", ` +
	`"netAttachDefName": "ns/net"%s}`

// send sends a request in the same way as the plugin, and returns the status and the body of the response.
func send(t *testing.T, s *Server, command, ifName, args, more string) (int, string) {
	t.Helper()
	body, err := json.Marshal(Request{Env: map[string]string{"CNI_COMMAND": command, "CNI_IFNAME": ifName,
		"CNI_CONTAINERID": strings.Repeat("c", 64), "CNI_NETNS": "/nowhere", "CNI_ARGS": args},
		Config: fmt.Appendf(nil, layer2Conf, more)})
	if err != nil {
		t.Fatal(err)
	}
	recorder := httptest.NewRecorder()
	s.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "http://dummy/", strings.NewReader(string(body))))
	return recorder.Code, recorder.Body.String()
}

// The server rejects the same requests as the real server, and does so immediately unless it waits for addresses.
func TestServerRefuses(t *testing.T) {
	given := `{"ns/net": {"ip_addresses": ["192.0.2.4/24"], "mac_address": "0a:58:c0:00:02:04"}}`
	const args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p;K8S_POD_UID=uid-p"
	for name, test := range map[string]struct {
		pod                         *corev1.Pod
		command, ifName, args, more string
		want                        string
	}{
		"an interface that is not implied": {podOf("p", "net", given), "ADD", "net2", args, "",
			"failed to find NAD key associated with CNI request for pod ns/p with ifName net2"},
		"an annotation without the network": {podOf("p", "other", given), "ADD", "net1", args, "",
			"failed to find NAD key"},
		"another pod of the name": {podOf("p", "net", given), "ADD", "net1",
			strings.Replace(args, "uid-p", "old", 1), "", "Request Pod UID old is different from the Pod UID (uid-p)"},
		"a function that is none": {podOf("p", "net", given), "ADD", "net1", args, `, "deviceID": "0000:41:10.0"`,
			"failed in cmdAdd while getting Netdevice name: 0000:41:10.0 is no virtual function"},
		"a function in the runtime configuration, which is none": {podOf("p", "net", given), "ADD", "net1", args,
			`, "runtimeConfig": {"deviceID": "0000:41:10.0"}`, `failed to open netns "/nowhere"`},
		"a localnet without a mapping": {podOf("p", "net", given), "ADD", "net1", args, `, "topology": "localnet"`,
			"failed bridge mapping validation"},
		"no topology":  {podOf("p", "net", given), "ADD", "net1", args, `, "topology": ""`, "no default network"},
		"no arguments": {podOf("p", "net", given), "ADD", "net1", "K8S_POD_NAME", "", "invalid CNI_ARG 'K8S_POD_NAME'"},
		"no pod in the arguments": {podOf("p", "net", given), "ADD", "net1", "K8S_POD_NAMESPACE=ns", "",
			"missing K8S_POD_NAME"},
		"a namespace that is gone": {podOf("p", "net", given), "ADD", "net1", args, "",
			`failed to open netns "/nowhere"`},
		"DEL of an interface that is not implied": {podOf("p", "", given), "DEL", "net1", args, "",
			"failed to find NAD key"},
		"DEL without a namespace": {podOf("p", "net", given), "DEL", "net1", args, "",
			"failed to get container namespace"},
		"another command": {podOf("p", "net", given), "VERSION", "net1", args, "", "unsupported CNI command"},
	} {
		t.Run(name, func(t *testing.T) {
			clock := testingclock.NewFakeClock(time.Unix(0, 0))
			s := NewServer(Config{Client: fake.NewClientset(test.pod), Clock: clock, State: t.TempDir(),
				PCI: t.TempDir()})
			status, text := send(t, s, test.command, test.ifName, test.args, test.more)
			if status != http.StatusBadRequest || !strings.Contains(text, test.want) {
				t.Errorf("got status %d: %s, want 400 with %q", status, text, test.want)
			}
		})
	}
	s := NewServer(Config{Client: fake.NewClientset(), Clock: testingclock.NewFakeClock(time.Unix(0, 0))})
	for _, command := range []string{"CHECK", "STATUS"} {
		if status, text := send(t, s, command, "", "", ""); status != http.StatusOK || text != "" {
			t.Errorf("%s: got status %d %s, want 200 without a body", command, status, text)
		}
	}
}

// waitFor sends a request in the background and advances the clock until the response arrives.
func waitFor(
	t *testing.T, s *Server, clock *testingclock.FakeClock, step time.Duration,
) (waited time.Duration, text string) {
	t.Helper()
	answers := make(chan string, 1)
	go func() {
		_, text := send(t, s, "ADD", "net1", "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p", "")
		answers <- text
	}()
	for {
		select {
		case text := <-answers:
			return waited, text
		default:
			if clock.Waiters() > 1 { // one for the time limit and one for the next poll
				clock.Step(step)
				waited += step
			}
		}
	}
}

// A request waits up to two minutes for a pod's addresses, and up to one second for a pod that does not exist yet.
func TestServerWaits(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Unix(0, 0))
	s := NewServer(Config{Client: fake.NewClientset(podOf("p", "net", "")), Clock: clock})
	if waited, text := waitFor(t, s, clock, time.Second); waited < RealLimit || waited > RealLimit+10*time.Second ||
		!strings.Contains(text, "failed to get pod annotation: timed out waiting for annotations") {
		t.Errorf("unexpected answer after %s: %s", waited, text)
	}
	s = NewServer(Config{Client: fake.NewClientset(), Clock: clock})
	if waited, text := waitFor(t, s, clock, pollInterval); waited > time.Second ||
		!strings.Contains(text, "timed out waiting for pod after 1s") {
		t.Errorf("unexpected answer after %s: %s", waited, text)
	}
}

// The controller allocates addresses for the pods on its node that request a network, and keeps existing allocations.
func TestController(t *testing.T) {
	nad := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "k8s.cni.cncf.io/v1",
		"kind": "NetworkAttachmentDefinition", "metadata": map[string]any{"namespace": "ns", "name": "net"},
		"spec": map[string]any{"config": fmt.Sprintf(layer2Conf,
			`, "subnets": "192.0.2.0/28, 2001:db8::/64", "excludeSubnets": "192.0.2.0/30"`)}}}
	broken := nad.DeepCopy()
	broken.SetName("broken") // its configuration contains a different name
	ended := podOf("ended", "net", `{"ns/net": {"ip_addresses": ["192.0.2.5/28"], "mac_address": "0a:58:c0:00:02:05"}}`)
	ended.Status.Phase = corev1.PodSucceeded
	elsewhere := podOf("elsewhere", "net", "")
	elsewhere.Spec.NodeName = "m"
	client := fake.NewClientset(
		podOf("a", "net", `{"ns/net": {"ip_addresses": ["192.0.2.4/28"], "mac_address": "0a:58:c0:00:02:04"}}`),
		podOf("b", "net,net", ""), podOf("c", "broken,unknown", ""), podOf("d", "", ""), ended, elsewhere)
	objects := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{attachmentDefinitions(): "NetworkAttachmentDefinitionList"})
	for _, object := range []*unstructured.Unstructured{nad, broken} {
		if _, err := objects.Resource(attachmentDefinitions()).Namespace("ns").Create(t.Context(), object,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c := &Controller{Client: client, Node: "n", Dynamic: objects}
	for range 2 {
		if err := c.sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]string{}
	pods, err := client.CoreV1().Pods("ns").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		networks, err := podNetworks(&pod)
		if err != nil {
			t.Error(err)
		}
		for key, network := range networks {
			got[pod.Name+" "+key] = fmt.Sprint(network.IPs, network.MAC)
		}
	}
	want := map[string]string{
		"a ns/net":     "[192.0.2.4/28]0a:58:c0:00:02:04",
		"b ns/net":     "[192.0.2.5/28 2001:db8::1/64]0a:58:c0:00:02:05",
		"b ns/net/1":   "[192.0.2.6/28 2001:db8::2/64]0a:58:c0:00:02:06",
		"ended ns/net": "[192.0.2.5/28]0a:58:c0:00:02:05",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong addresses (-want +got):\n%s", diff)
	}
}

// When a server starts, it recreates the directory that contains its socket. Existing mounts still show the old
// directory.
func TestSocketFolderIsMadeAnew(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "cni")
	old := filepath.Join(folder, "old")
	if err := os.MkdirAll(old, 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	socket := filepath.Join(folder, "s")
	go func() {
		ended <- NewServer(Config{Client: fake.NewClientset(), Clock: testingclock.NewFakeClock(time.Unix(0, 0))}).
			Serve(ctx, socket)
	}()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		if _, err := os.Stat(socket); err == nil {
			break
		}
	}
	if _, err := os.Stat(old); err == nil {
		t.Error("the directory was not recreated")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestFunctionMustBeVirtual(t *testing.T) {
	v := &vswitch{pci: t.TempDir()}
	if _, err := v.functionLink("0000:41:00.0"); err == nil ||
		!strings.Contains(err.Error(), "is no virtual function") {
		t.Errorf("unexpected error: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(v.pci, "0000:41:10.0", "physfn"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := v.functionLink("0000:41:10.0"); err == nil || !strings.Contains(err.Error(), "no link on the host") {
		t.Errorf("unexpected error: %v", err)
	}
}

// sweep removes only ports whose interface no longer exists. "lo" stands in for an existing interface. The port for a
// virtual function is the function's representor, which the double does not create.
func TestSweep(t *testing.T) {
	v := &vswitch{state: t.TempDir()}
	for name, p := range map[string]port{"lo": {}, "gone0": {}, "r0000_41_10_0": {Netdev: "eth7"}} {
		if err := v.addPort(name, port{IfaceID: name, Netdev: p.Netdev}); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.sweep(); err != nil {
		t.Fatal(err)
	}
	left, err := v.ports()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"lo", "r0000_41_10_0"}, slices.Sorted(maps.Keys(left))); diff != "" {
		t.Errorf("wrong ports (-want +got):\n%s", diff)
	}
}
