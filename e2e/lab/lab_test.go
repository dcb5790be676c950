package lab_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
)

// needed is the environment variable that makes tests start a cluster even if its programs have to be built first.
const needed = "DRA_NETWORK_E2E"

func skipUnlessPossible(t *testing.T, versions ...string) {
	t.Helper()
	if os.Getenv(needed) != "" {
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: starts a cluster")
	}
	for _, version := range append(versions, "") {
		if _, cached, err := lab.Cached(t.Context(), lab.BuildOptions{Kubernetes: version}); err != nil || !cached {
			t.Skipf("the cluster's programs are not built: run `go run ./e2e/cmd/lab build --kubernetes=%s` once, or "+
				"set %s=1 (%v)", version, needed, err)
		}
	}
}

func TestCluster(t *testing.T) {
	skipUnlessPossible(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute) // includes an uncached build
	defer cancel()
	mounts, links := hostMounts(t), hostState(t)
	extra := t.TempDir()
	createFilesOfHost(t)
	if err := os.WriteFile(filepath.Join(extra, "special"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	c, err := lab.Up(ctx, lab.Options{
		Name: "labtest", NodeName: "worker", NodeLabels: map[string]string{"example.com/rack": "7"},
		ExtraCNIDirs: []string{extra}, Progress: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // does nothing after a successful test
		if err := c.Down(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	pid := initPID(t, c)

	t.Run("inside", func(t *testing.T) { checkInside(ctx, t, c) })
	t.Run("links", func(t *testing.T) { checkLinks(ctx, t, c) })
	client := newClient(t, c)
	t.Run("pod", func(t *testing.T) { runPod(ctx, t, client) })
	t.Run("static pod", func(t *testing.T) { runStaticPod(ctx, t, c, client) })
	for _, comp := range lab.Components() {
		t.Run("restart "+string(comp), func(t *testing.T) {
			if err := c.Restart(ctx, comp, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("pod after restarts", func(t *testing.T) { waitReady(ctx, t, client, "probe") })

	start := time.Now()
	for range 2 { // the second call must also succeed
		if err := c.Down(ctx); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("Down took %s", time.Since(start))
	checkNothingLeft(t, c, pid, mounts, links)
}

// TestControlPlane starts only a control plane, with another Kubernetes version and with feature gates.
func TestControlPlane(t *testing.T) {
	const version = "1.36"
	skipUnlessPossible(t, version)
	mounts, links := hostMounts(t), hostState(t)
	c, err := lab.Up(t.Context(), lab.Options{
		Name: "labtest-plane", ControlPlaneOnly: true, Kubernetes: version,
		FeatureGates: map[string]bool{"DRAListTypeAttributes": true}, Progress: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // does nothing after a successful test
		if err := c.Down(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	pid, client := initPID(t, c), newClient(t, c)
	status, err := c.Status(t.Context())
	if err != nil || len(status) != 4 || !status[lab.Scheduler].Running {
		t.Errorf("components = %+v (%v), want four, with a running scheduler", status, err)
	}
	if got, err := client.Discovery().ServerVersion(); err != nil || got.Major+"."+got.Minor != version {
		t.Errorf("API server has unexpected version %v (%v)", got, err)
	}
	if line, err := c.Exec(t.Context(), "cat",
		fmt.Sprintf("/proc/%d/cmdline", status[lab.APIServer].PID)); err != nil ||
		!bytes.Contains(line, []byte("DRAListTypeAttributes=true")) {
		t.Errorf("the API server's command line %q lacks the feature gate (%v)", line, err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "made"}, Status: corev1.NodeStatus{
		Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")},
	}}
	if made, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil ||
		len(made.Spec.Taints) > 0 {
		t.Errorf("the new node %+v has taints or was not created (%v)", made, err)
	}
	if _, err := client.CoreV1().Pods("default").Create(t.Context(), pod("probe"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitCondition(t.Context(), t, client, "probe", corev1.PodScheduled)
	if err := c.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkNothingLeft(t, c, pid, mounts, links)
}

func TestSecondClusterOfTheSameNameIsRefused(t *testing.T) {
	skipUnlessPossible(t)
	o := lab.Options{Name: "labtest-twice", Progress: t.Output()}
	c, err := lab.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Down(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	if _, err := lab.Up(t.Context(), o); err == nil || !strings.Contains(err.Error(), "running already") {
		t.Errorf("the second start returned %v, want running already", err)
	}
	found, err := lab.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := found.Stop(t.Context(), lab.Scheduler, syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	status, err := c.Status(t.Context())
	if err != nil || status[lab.Scheduler].Running || !status[lab.Kubelet].Running {
		t.Errorf("state = %+v (%v), want only the scheduler stopped", status, err)
	}
}

// initPID returns process 1's process ID on the host.
func initPID(t *testing.T, c *lab.Cluster) string {
	t.Helper()
	root, err := c.NodePath("/")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(root, "/")[2]
}

func newClient(t *testing.T, c *lab.Cluster) kubernetes.Interface {
	t.Helper()
	config, err := c.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// filesOfHost returns files on the host that must not be visible on the node: another pod's lease, and files that other
// software installs for container runtimes.
func filesOfHost() []string {
	return []string{"/var/lib/cni/networks/labtest-of-the-host/10.0.0.1", "/etc/cdi/labtest-of-the-host.json",
		"/etc/cni/net.d/00-labtest-of-the-host.conflist", "/opt/nri/plugins/00-labtest-of-the-host",
		"/usr/lib/cni/labtest-of-the-host"}
}

// createFilesOfHost creates the files and their missing parent directories, and removes them at the end of the test.
func createFilesOfHost(t *testing.T) {
	t.Helper()
	for _, file := range filesOfHost() {
		created := file
		for above := filepath.Dir(created); !exists(above); above = filepath.Dir(above) {
			created = above
		}
		t.Cleanup(func() {
			if err := os.RemoveAll(created); err != nil {
				t.Error(err)
			}
		})
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("other\neth0"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func checkInside(ctx context.Context, t *testing.T, c *lab.Cluster) {
	for _, probe := range []struct {
		args []string
		want string
	}{
		{[]string{"kubectl", "get", "nodes", "--selector=example.com/rack=7", "--no-headers"}, "worker"},
		{[]string{"hostname"}, "worker"},
		{append([]string{"sh", "-c", `n=0; for f; do test -e "$f" && n=$((n+1)); done; echo "$n are visible"`, "sh"},
			filesOfHost()...), "0 are visible"},
		{[]string{"ls", "/opt/cni/bin"}, "special"},
		{[]string{"ls", "/opt/cni/bin"}, "host-device"},
		{[]string{"ls", "/sys/class/net"}, "node0"},
		{[]string{"cat", "/proc/1/cmdline"}, "labnode"},
	} {
		out, err := c.Exec(ctx, probe.args...)
		if err != nil || !strings.Contains(string(out), probe.want) {
			t.Errorf("%v printed %q, want %q (%v)", probe.args, out, probe.want, err)
		}
	}
	if _, err := c.Exec(ctx, "sh", "-c", "echo oops >&2; exit 3"); err == nil ||
		!strings.Contains(err.Error(), "oops") {
		t.Errorf("the error of a failing command = %v, want its stderr", err)
	}
	if sockets, err := c.NodeGlob("/var/run/containerd/containerd.sock"); err != nil || len(sockets) != 1 {
		t.Errorf("found sockets %v, %v; want one", sockets, err)
	}
}

func checkLinks(ctx context.Context, t *testing.T, c *lab.Cluster) {
	if err := c.AddVeth("port0", "port1"); err != nil {
		t.Fatal(err)
	}
	if err := c.AddBridge("switch0", "port1"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Exec(ctx, "test", "-e", "/sys/class/net/switch0/brif/port1"); err != nil {
		t.Error(err)
	}
	if err := c.DeleteLink("port0"); err != nil {
		t.Error(err)
	}
	if _, err := c.Exec(ctx, "test", "-e", "/sys/class/net/port1"); err == nil {
		t.Error("the peer outlived its interface")
	}
}

func pod(name string) *corev1.Pod {
	grace := int64(0)
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{
				Name: "main", Image: lab.ToolboxImage, ImagePullPolicy: corev1.PullNever,
				// The pod becomes Ready once the API server has responded at its Service address.
				Command: []string{"sh", "-c", `printf 'GET / HTTP/1.0\r\n\r\n' |
nc $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT | grep -q HTTPS && touch /tmp/ok; exec sleep 3600`},
				ReadinessProbe: &corev1.Probe{
					PeriodSeconds: 1,
					ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "-e",
						"/tmp/ok"}}},
				},
			}},
		},
	}
}

func runPod(ctx context.Context, t *testing.T, client kubernetes.Interface) {
	if _, err := client.CoreV1().Pods("default").Create(ctx, pod("probe"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitReady(ctx, t, client, "probe")
}

func runStaticPod(ctx context.Context, t *testing.T, c *lab.Cluster, client kubernetes.Interface) {
	const manifest = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"static","namespace":"default"},"spec":{
"hostNetwork":true,"containers":[{"name":"main","image":"%s","imagePullPolicy":"Never","command":["sleep","3600"]}]}}`
	path := filepath.Join(c.ManifestDir(), "static.json")
	if err := os.WriteFile(path, fmt.Appendf(nil, manifest, lab.ToolboxImage), 0o600); err != nil {
		t.Fatal(err)
	}
	waitReady(ctx, t, client, "static-"+c.NodeName())
}

func waitReady(ctx context.Context, t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	waitCondition(ctx, t, client, name, corev1.PodReady)
}

func waitCondition(
	ctx context.Context, t *testing.T, client kubernetes.Interface, name string, condition corev1.PodConditionType,
) {
	t.Helper()
	waitPod(ctx, t, client, name, string(condition), func(p *corev1.Pod) bool {
		for _, cond := range p.Status.Conditions {
			if cond.Type == condition && cond.Status == corev1.ConditionTrue {
				return true
			}
		}
		return false
	})
}

func waitPod(
	ctx context.Context, t *testing.T, client kubernetes.Interface, name, what string, reached func(*corev1.Pod) bool,
) {
	t.Helper()
	var last corev1.PodStatus
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 3*time.Minute, true,
		func(ctx context.Context) (bool, error) {
			p, err := client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, nil //nolint:nilerr // it may not exist yet, or the API server may be restarting
			}
			last = p.Status
			return reached(p), nil
		})
	if err != nil {
		t.Fatalf("pod %s did not become %s: %v: %+v", name, what, err, last)
	}
}

func hostMounts(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// hostState lists the host's interfaces, and the files that components write outside the cluster's own directories by
// default.
func hostState(t *testing.T) string {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range all {
		names = append(names, l.Name)
	}
	if _, err := os.Stat("/usr/libexec/kubernetes"); err == nil {
		names = append(names, "/usr/libexec/kubernetes")
	}
	return strings.Join(names, " ")
}

func checkNothingLeft(t *testing.T, c *lab.Cluster, pid string, mounts []byte, links string) {
	if _, err := os.Stat(filepath.Join("/proc", pid)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("process %s still exists (%v)", pid, err)
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		if line, err := os.ReadFile(p); err == nil && bytes.Contains(line, []byte(c.RunDir())) {
			t.Errorf("a process was left behind: %s", line)
		}
	}
	if !bytes.Equal(mounts, hostMounts(t)) {
		t.Errorf("the host's mounts changed from\n%s\nto\n%s", mounts, hostMounts(t))
	}
	if now := hostState(t); now != links {
		t.Errorf("the host's interfaces changed from %q to %q", links, now)
	}
	for _, pattern := range []string{"/sys/fs/cgroup/dra-lab-labtest*", "/sys/fs/cgroup/*/dra-lab-labtest*"} {
		if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
			t.Errorf("cgroups still exist: %v (%v)", left, err)
		}
	}
	if _, err := os.Stat(c.RunDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the run directory still exists (%v)", err)
	}
}
