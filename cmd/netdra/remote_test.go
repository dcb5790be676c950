package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/util/exec"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/remote"
)

// workstation is a machine without a driver, and a simulated cluster whose nodes run netdra on behalf of the
// workstation.
type workstation struct {
	*testing.T
	mu sync.Mutex
	// socket and logs are the paths of the driver's socket and log directory on every node.
	socket, logs string
	// asked records the command lines run on nodes, as "NODE: ARGUMENTS".
	asked []string
	// broken maps a node's name to the error from running commands on the node.
	broken map[string]error
	// further lists additional pods in the cluster.
	further []*corev1.Pod
	facts   osdeps.Deps
}

func newWorkstation(t *testing.T) *workstation {
	t.Helper()
	return &workstation{T: t, socket: busyDriver(t), logs: loggedClaim(t), broken: map[string]error{},
		facts: newFake(t).machine()}
}

// driverPod returns a driver pod on the given node.
func driverPod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "dra-network", Name: name,
			Labels: map[string]string{"app.kubernetes.io/name": "dra-network-driver"}},
		Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// allocated returns a claim with an allocated device on a node.
func allocated(namespace, name, driver, device, node string) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{
			Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
				{Driver: driver, Device: device}}},
			NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name",
					Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}},
		}},
	}
}

func (w *workstation) cluster(access remote.Access) (*remote.Cluster, error) {
	claimName := "mv"
	gpu := "gpu"
	client := kubefake.NewClientset(driverPod("driver-2", "n2"), driverPod("driver-1", "n1"),
		allocated("ns", "whole", "dra.networking", "eth1", "n1"),
		allocated("default", "mv", "dra.networking", "up0", "n2"),
		allocated("default", "gpu", "gpu.example.com", "gpu-0", "n2"),
		allocated("default", "p-net", "dra.networking", "up0", "n2"),
		&resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "waits"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "job"},
			Spec: corev1.PodSpec{NodeName: "n2",
				ResourceClaims: []corev1.PodResourceClaim{{Name: "net", ResourceClaimName: &claimName},
					{Name: "gpu", ResourceClaimName: &gpu}}}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "plain"},
			Spec: corev1.PodSpec{NodeName: "n1"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pending"}})
	for _, pod := range w.further {
		if err := client.Tracker().Add(pod); err != nil {
			return nil, err
		}
	}
	namespace := access.Namespace
	if namespace == "" {
		namespace = "default"
	}
	return &remote.Cluster{
		Core: client.CoreV1(), Resource: client.ResourceV1(), Namespace: namespace, Stream: w.stream,
		DriverNamespace: access.DriverNamespace,
		Raw: func(_ context.Context, path string) ([]byte, error) {
			if strings.HasSuffix(path, "/networktopologies") {
				return []byte(`{"items": [{"metadata": {"name": "t", "annotations": {` +
					`"kubectl.kubernetes.io/last-applied-configuration": "{\"password\": \"hunter2\"}"}}, ` +
					`"spec": {"steps": [{"config": {"password": "hunter2", "mode": "bridge"}}]}}]}`), nil
			}
			return nil, errors.New("forbidden")
		},
	}, nil
}

// stream simulates a node by running netdra against the node's driver.
func (w *workstation) stream(ctx context.Context, pod *corev1.Pod, command []string, stdout, stderr io.Writer) error {
	w.mu.Lock() // all nodes share the environment
	defer w.mu.Unlock()
	w.asked = append(w.asked, pod.Spec.NodeName+": "+strings.Join(command, " "))
	if err := w.broken[pod.Spec.NodeName]; err != nil {
		return err
	}
	node := w.facts
	node.Clock = testingclock.NewFakeClock(time.Unix(0, 0))
	w.Setenv("NETDRA_SOCKET", w.socket)
	w.Setenv("NETDRA_LOG_DIR", w.logs)
	w.Setenv("NETDRA_ROOT", w.TempDir())
	defer w.leave()
	code := run(ctx, node, printer.Streams{In: strings.NewReader(""), Out: stdout, Err: stderr}, command[1:]...)
	if code != exit.OK {
		return exec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", code), Code: code}
	}
	return nil
}

// leave makes the environment variables refer to missing files, as on a machine that is not a node.
func (w *workstation) leave() {
	w.Setenv("NETDRA_SOCKET", "/nowhere/netdra.sock")
	w.Setenv("NETDRA_LOG_DIR", "/nowhere/log")
	w.Setenv("NETDRA_ROOT", "")
}

func (w *workstation) run(line string) (code int, stdout, stderr string) {
	w.Helper()
	w.leave()
	w.asked = nil
	var out, errs bytes.Buffer
	code = run(w.Context(), osdeps.Deps{Cluster: w.cluster, Clock: testingclock.NewFakeClock(time.Unix(0, 0))},
		printer.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}, strings.Fields(line)...)
	return code, out.String(), errs.String()
}

// Objects and flags determine the node and the command line. The output is the same as on the node itself.
func TestCommandsAskOtherNodes(t *testing.T) {
	w := newWorkstation(t)
	for line, want := range map[string]struct {
		asked []string
		code  int
		text  string
	}{
		"devices --node n1":             {[]string{"n1: /netdra devices --"}, exit.OK, "eth1"},
		"devices --node n2 up0 -o wide": {[]string{"n2: /netdra devices --output=wide -- up0"}, exit.OK, "n/up0"},
		"devices node/n1":               {[]string{"n1: /netdra devices --"}, exit.OK, "eth1"},
		"devices pod/job":               {[]string{"n2: /netdra devices -- up0"}, exit.OK, "up0"},
		"devices claim/whole -n ns":     {[]string{"n1: /netdra devices -- eth1"}, exit.OK, "ns/whole"},
		"claims claim/whole -n ns":      {[]string{"n1: /netdra claims -- ns/whole"}, exit.OK, "attached"},
		"claims pod/job": {[]string{"n2: /netdra claims -- default/mv"}, exit.Failed,
			"no address is free"},
		"claims --node n2 mv": {[]string{"n2: /netdra claims -- default/mv"}, exit.Failed, "no address is free"},
		"trace claim/p-net":   {[]string{"n2: /netdra trace -- default/p-net"}, exit.Failed, "failed"},
		"trace claim/p-net --failed": {[]string{"n2: /netdra trace --failed=true -- default/p-net"},
			exit.Failed, "no such knob"},
		"doctor pod/plain -o json": {[]string{"n1: /netdra doctor --output=json"}, exit.Failed, `"level"`},
	} {
		code, stdout, stderr := w.run(line)
		if code != want.code || !slices.Equal(w.asked, want.asked) || !strings.Contains(stdout, want.text) {
			t.Errorf("netdra %s: exit status %d, queries %q\n%s%s", line, code, w.asked, stdout, stderr)
		}
	}
}

func TestOtherNodesThatCannotBeAsked(t *testing.T) {
	w := newWorkstation(t)
	for line, want := range map[string]string{
		"claims nothing":                               "the driver of this node does not answer",
		"claims claim/nothing":                         "cannot get claim default/nothing",
		"claims claim/waits":                           "no device of this driver is allocated to it",
		"claims pod/plain":                             "it has no device of this driver",
		"trace claim/gpu":                              "no device of this driver",
		"trace pod/pending":                            "the pod is not scheduled",
		"devices --node n3":                            "no driver pod runs there",
		"devices --node n1 --socket /x":                "cannot use --socket for another node",
		"report --node n1 --root /mnt":                 "cannot use --root for another node",
		"report --all-nodes -f policies.yaml":          "cannot use --filename with --all-nodes",
		"report --all-nodes --from worker-1":           "cannot use --from with --all-nodes",
		"claims claim/mv pod/job --node":               "flag needs an argument",
		"devices node/n1 node/n2":                      "cannot query nodes n1 and n2 in one call",
		"doctor --node n1 extra":                       `cannot use argument "extra"`,
		"devices --context other":                      "name the node with --node",
		"devices --all-nodes up0":                      "cannot use arguments with --all-nodes",
		"devices --all-nodes --driver-namespace other": "cannot find a driver pod in namespace other",
	} {
		if code, _, stderr := w.run(line); code != exit.Refused || !strings.Contains(stderr, want) {
			t.Errorf("netdra %s: exit status %d: %s", line, code, stderr)
		}
	}
	w.broken["n1"] = errors.New(`OCI runtime exec failed: exec: "/netdra": stat /netdra: no such file or directory`)
	w.broken["n2"] = apierrors.NewForbidden(schema.GroupResource{Resource: "pods/exec"}, "driver-2", nil)
	for line, want := range map[string]string{
		"claims --node n1": "the driver is too old", "claims --node n2": "dra-network-netdra",
	} {
		if code, _, stderr := w.run(line); code != exit.Refused || !strings.Contains(stderr, want) {
			t.Errorf("netdra %s: exit status %d: %s", line, code, stderr)
		}
	}
}

// If a node's driver pod is not running, the node is reported as unreachable rather than as a node without a driver.
func TestNodesWhoseDriverDoesNotRun(t *testing.T) {
	w := newWorkstation(t)
	pod := func(name, node string, change func(*corev1.Pod)) {
		made := driverPod(name, node)
		made.Status.Phase, made.CreationTimestamp = corev1.PodPending, metav1.Unix(1000, 0)
		change(made)
		w.further = append(w.further, made)
	}
	pod("driver-3", "n3", func(p *corev1.Pod) {
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "cni-plugins", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "driver", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}}}
	})
	pod("driver-4", "", func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
					{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n4"}}}}}}}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Message: "0/4 nodes are available: 1 Insufficient memory."}}
	})
	pod("driver-5", "n5", func(p *corev1.Pod) {
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "cni-plugins", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 7}}}}
	})
	pod("driver-6", "n6", func(*corev1.Pod) {})
	pod("evicted", "n1", func(p *corev1.Pod) { // a running pod also exists
		p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted"
	})
	for _, line := range []string{"devices --all-nodes", "doctor --all-nodes"} {
		code, _, stderr := w.run(line)
		if code != exit.Refused {
			t.Errorf("netdra %s: exit status %d", line, code)
		}
		for _, want := range []string{
			"cannot query node n3: the driver's pod dra-network/driver-3 is not running: container cni-plugins " +
				"waits: ImagePullBackOff, no such image; ",
			"cannot query node n4: the driver's pod dra-network/driver-4 is not running: 0/4 nodes are available: 1 " +
				"Insufficient memory; ",
			"cannot query node n5: the driver's pod dra-network/driver-5 is not running: container cni-plugins has " +
				"failed with exit status 7: Error; ",
			"cannot query node n6: the driver's pod dra-network/driver-6 is not running: Pending; ",
		} {
			if !strings.Contains(stderr, want) {
				t.Errorf("netdra %s: stderr lacks %q:\n%s", line, want, stderr)
			}
		}
		if strings.Contains(stderr, "node n1:") {
			t.Errorf("netdra %s does not query a node whose driver is running:\n%s", line, stderr)
		}
	}
	for node, want := range map[string]string{"n3": "ImagePullBackOff", "n4": "Insufficient memory"} {
		code, _, stderr := w.run("devices --node " + node)
		if code != exit.Refused || !strings.Contains(stderr, want) {
			t.Errorf("netdra devices --node %s: exit status %d: %s", node, code, stderr)
		}
	}
}

// In the driver's pod, netdra never uses the driver's permissions, even if the socket does not exist.
func TestDriverPodAsksItself(t *testing.T) {
	t.Setenv("NETDRA_SOCKET", "/nowhere/netdra.sock")
	t.Setenv("NETDRA_ROOT", "/host/proc/1/root")
	deps := osdeps.Deps{Cluster: func(remote.Access) (*remote.Cluster, error) {
		t.Error("netdra looked for a cluster")
		return nil, errors.New("no cluster")
	}}
	var out, errs bytes.Buffer
	code := run(t.Context(), deps, printer.Streams{Out: &out, Err: &errs}, "claims", "--", "ns/whole")
	if code != exit.Refused || !strings.Contains(errs.String(), "/nowhere/netdra.sock") {
		t.Errorf("exit status %d: %s%s", code, out.String(), errs.String())
	}
}

// If a node is unreachable, the report and the lists still include the other nodes.
func TestAllNodes(t *testing.T) {
	w := newWorkstation(t)
	for line, want := range map[string][]string{
		"devices --all-nodes":         {"NODE", "\nn1    eth1", "\nn2    eth1"},
		"devices --all-nodes -o json": {`"node": "n1"`, `"node": "n2"`, `"name": "up0"`},
		"doctor --all-nodes":          {"node n1\n", "node n2\n"},
		"report --all-nodes": {"2 nodes", "device or resource busy", `<section id="node-n2">`, "ns/whole",
			"default/later"},
	} {
		code, stdout, stderr := w.run(line)
		for _, text := range want {
			if code == exit.Refused || !strings.Contains(stdout, text) {
				t.Errorf("netdra %s: exit status %d, want %q in the output:\n%s%s", line, code, text, stdout, stderr)
			}
		}
	}
	w.broken["n2"] = errors.New("no route to <host>")
	for line, want := range map[string]string{"devices --all-nodes": "\nn1    eth1",
		"doctor --all-nodes": "node unreachable"} {
		if code, stdout, stderr := w.run(line); code != exit.Refused || !strings.Contains(stdout, want) ||
			!strings.Contains(stderr, "no route to <host>") {
			t.Errorf("netdra %s: exit status %d\n%s%s", line, code, stdout, stderr)
		}
	}
	if code, stdout, _ := w.run("report --all-nodes"); code != exit.OK ||
		!strings.Contains(stdout, "no route to &lt;host&gt;") {
		t.Errorf("exit status %d\n%s", code, stdout)
	}
}

// If a node does not respond, the results of the other nodes are still shown.
func TestNodeThatHangs(t *testing.T) {
	w := newWorkstation(t)
	deps := osdeps.Deps{Cluster: func(access remote.Access) (*remote.Cluster, error) {
		cluster, err := w.cluster(access)
		cluster.Stream = func(ctx context.Context, pod *corev1.Pod, _ []string, stdout, _ io.Writer) error {
			if pod.Spec.NodeName == "n2" {
				<-ctx.Done()
				return ctx.Err()
			}
			_, err := io.WriteString(stdout, `[{"name": "eth1"}]`)
			return err
		}
		cluster.Patience = time.Nanosecond // ignored by nodes that respond
		return cluster, err
	}}
	var out, errs bytes.Buffer
	code := run(t.Context(), deps, printer.Streams{Out: &out, Err: &errs}, "devices", "--all-nodes")
	if code != exit.Refused || !strings.Contains(out.String(), "\nn1    eth1") ||
		!strings.Contains(errs.String(), "cannot query node n2: it takes too long") {
		t.Errorf("exit status %d: %s%s", code, out.String(), errs.String())
	}
}

// Output from a node cannot send control sequences to the terminal.
func TestNodesAreStrangers(t *testing.T) {
	w := newWorkstation(t)
	cluster, _ := w.cluster(remote.Access{DriverNamespace: "dra-network"})
	cluster.Stream = func(_ context.Context, _ *corev1.Pod, _ []string, stdout, stderr io.Writer) error {
		_, _ = io.WriteString(stdout, "eth1\x1b]0;title\x07\n")
		_, _ = io.WriteString(stderr, "\x1b[2Jgone\n")
		return nil
	}
	var out, errs bytes.Buffer
	if err := cluster.Relay(t.Context(), printer.Streams{Out: &out, Err: &errs}, "n1",
		[]string{"devices"}); err != nil ||
		strings.ContainsAny(out.String()+errs.String(), "\x1b\x07") || !strings.Contains(out.String(), "eth1") {
		t.Errorf("error = %v, got output %q, stderr %q", err, out.String(), errs.String())
	}
}

// A bundle for a node contains command output but no secrets. If the bundle cannot be created on the node, the error
// from the node is shown.
func TestBundle(t *testing.T) {
	w := newWorkstation(t)
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	if code, _, stderr := w.run("bundle --node n1 --file " + file); code != exit.OK {
		t.Fatalf("exit status %d: %s", code, stderr)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatal(info, err)
	}
	content := unpack(t, file)
	for name, text := range content {
		if strings.Contains(text, "hunter2") {
			t.Errorf("%s contains a secret:\n%s", name, text)
		}
	}
	for name, want := range map[string]string{
		"devices.json": `"eth1"`, "cni-calls/default_p-net.json": `"command"`, "leftovers.json": `"psk": "(redacted)"`,
		"commands.txt": "netdra devices -o wide: exit status 0",
	} {
		if !strings.Contains(content[name], want) {
			t.Errorf("%s lacks %q:\n%s", name, want, content[name])
		}
	}
	w.broken["n1"] = errors.New("no route")
	if code, _, stderr := w.run("bundle --node n1 --file " + file); code != exit.Refused ||
		!strings.Contains(stderr, "no route") {
		t.Errorf("exit status %d: %s", code, stderr)
	}
}

// unpack returns the files in an archive, keyed by name.
func unpack(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	content := map[string]string{}
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return content
		}
		data, readErr := io.ReadAll(archive)
		if err != nil || readErr != nil || header.Mode != 0o600 {
			t.Fatal(header, err, readErr)
		}
		content[header.Name] = string(data)
	}
}

// If a file cannot be created on a node, the error from the node cannot send control sequences to the terminal.
func TestFileOfANodeThatRefuses(t *testing.T) {
	w := newWorkstation(t)
	deps := osdeps.Deps{Cluster: func(access remote.Access) (*remote.Cluster, error) {
		cluster, err := w.cluster(access)
		cluster.Stream = func(_ context.Context, _ *corev1.Pod, _ []string, _, stderr io.Writer) error {
			_, _ = io.WriteString(stderr, "Error: unknown command \"bundle\"\x1b[2J\n")
			return exec.CodeExitError{Err: errors.New("command terminated"), Code: exit.Refused}
		}
		return cluster, err
	}}
	var out, errs bytes.Buffer
	code := run(t.Context(), deps, printer.Streams{Out: &out, Err: &errs}, "bundle", "--node", "n1")
	if want := "cannot create the bundle of node n1: exit status 2 of netdra there: Error: unknown command"; code !=
		exit.Refused || !strings.Contains(errs.String(), want) || strings.Contains(errs.String(), "\x1b") {
		t.Errorf("exit status %d, want %q: %s", code, want, errs.String())
	}
}
