package plugin

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/attach"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

// lostSandboxes creates /proc and the runtime's namespace directory in the state after the runtime has lost the
// processes of sandboxes: process 7 belongs to a-0, process 8 now belongs to another pod, and process 9 is in the
// host's network namespace.
func lostSandboxes(t *testing.T) namespaces {
	t.Helper()
	n := namespaces{procDir: filepath.Join(t.TempDir(), "proc"), dir: t.TempDir()}
	for pid, cgroup := range map[string]string{"7": "0::/kubepods/pod-a/cri-containerd-a-0.scope\n",
		"8": "0::/system.slice\n", "9": "0::/kubepods/pod-h/h-0\n"} {
		process := filepath.Join(n.procDir, pid)
		err := errors.Join(os.MkdirAll(filepath.Join(process, "ns"), 0o755),
			os.WriteFile(filepath.Join(process, "cgroup"), []byte(cgroup), 0o600))
		if pid == "9" {
			err = errors.Join(err, os.Symlink("/proc/self/ns/net", filepath.Join(process, "ns", "net")))
		} else {
			err = errors.Join(err, os.WriteFile(filepath.Join(process, "ns", "net"), nil, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func TestNamespacesThatTheRuntimeHasLost(t *testing.T) {
	n := lostSandboxes(t)
	lost := func(id string, pid uint32) *api.PodSandbox { return &api.PodSandbox{Id: id, Pid: pid} }
	known := func(types ...string) *api.PodSandbox {
		pod := &api.PodSandbox{Id: "a-0", Pid: 7, Linux: &api.LinuxPodSandbox{}}
		for _, namespace := range types {
			pod.Linux.Namespaces = append(pod.Linux.Namespaces,
				&api.LinuxNamespace{Type: namespace, Path: "/run/netns/" + namespace})
		}
		return pod
	}
	ofProcess := filepath.Join(n.procDir, "7", "ns", "net")
	for name, test := range map[string]struct {
		pod           *api.PodSandbox
		want, problem string
	}{
		"known":                    {known("ipc", "network"), "/run/netns/network", ""},
		"on the host's network":    {known("ipc", "pid"), "", ""},
		"of its process":           {lost("a-0", 7), ofProcess, ""},
		"ended":                    {lost("a-0", 0), "", ""},
		"no such process":          {lost("a-0", 5), "", "process 5 has ended); delete the pod"},
		"another's process":        {lost("a-0", 8), "", "process 8 now belongs to another cgroup); delete the pod"},
		"of a process on the host": {lost("h-0", 9), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := n.pathOf(test.pod)
			if got != test.want || (err == nil) != (test.problem == "") || err != nil &&
				!strings.Contains(err.Error(), test.problem) {
				t.Errorf("got %q, error %v; want %q, error %q", got, err, test.want, test.problem)
			}
		})
	}
	// The runtime's own path is preferred, since it disappears with the sandbox, whereas a pin belongs to the driver.
	for _, name := range []string{"cni-other", "dra-a-0", "cni-a"} {
		if name == "cni-other" {
			if err := os.WriteFile(filepath.Join(n.dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.Link(ofProcess, filepath.Join(n.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := n.pathOf(lost("a-0", 7)); err != nil || got != filepath.Join(n.dir, "cni-a") {
		t.Errorf("got path %q, error %v", got, err)
	}
}

// failures is an Observer that also passes failures to a function.
type failures struct {
	attach.Observer
	note func(pod executor.Pod, records []claims.Record, err error)
}

func (o failures) AttachFailed(pod executor.Pod, records []claims.Record, err error, again time.Duration) {
	o.note(pod, records, err)
	o.Observer.AttachFailed(pod, records, err, again)
}

// If the runtime is killed in the middle of RunPodSandbox, the kubelet nevertheless continues with the sandbox, so the
// driver must either attach it or report why it cannot.
func TestPodsWhoseSandboxTheRuntimeHasLost(t *testing.T) {
	f := newFixture(t)
	f.nri.Namespaces = lostSandboxes(t)
	f.prepared("claim-a", "a", "up0")
	f.prepared("claim-b", "b", "up1")
	told := ""
	f.nri.Observer = failures{f, func(pod executor.Pod, records []claims.Record, err error) {
		told += pod.String() + " " + records[0].Claim.Name + ": " + err.Error()
	}}
	connection := &nriConnection{nriPlugin: f.nri, configured: func() {}}
	pods := []*api.PodSandbox{
		{Id: "a-0", Uid: "a", Name: "a", Namespace: "ns", Pid: 7},
		{Id: "b-0", Uid: "b", Name: "b", Namespace: "ns", Pid: 8},
		{Id: "c-0", Uid: "c", Name: "c", Namespace: "ns", Pid: 8}, // without claims, so its namespace is irrelevant
	}
	netns, err := f.nri.Namespaces.pathOf(pods[0])
	f.must(err)
	f.node.AddNamespace(netns)
	if _, err := connection.Synchronize(context.Background(), pods, nil); err != nil {
		t.Fatal(err)
	}
	f.eventually("the pod is attached", func() bool { return f.ready("a-0") })
	f.expect(attachedA, "claim-a")
	if !strings.HasPrefix(told, "ns/b claim-b: ") || !strings.Contains(told, "delete the pod") {
		t.Errorf("wrong report: %q", told)
	}
}
