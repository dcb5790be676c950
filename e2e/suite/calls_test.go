package suite

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
	"github.com/dra-networking/dra-network-driver/plugin/nritest"
)

// recordCalls makes TestRuntimeCalls overwrite the recording of the runtime's calls.
var recordCalls = flag.Bool("record-calls", false,
	"have TestRuntimeCalls write its recording to plugin/nritest/testdata")

// The container runtime calls NRI plugins in the same way as the simulated runtime in the unit tests: both must match
// the same recording. The runtime restarts while the pod is running.
func TestRuntimeCalls(t *testing.T) {
	e := newEnv(t, "calls")
	e.offerMacvlan("ca0", "10.141.0.0/24")
	recorder := &nritest.Recorder{Namespace: "calls", Exists: func(path string) bool {
		onNode, err := e.cluster.NodePath(path)
		if err == nil {
			_, err = os.Stat(onNode)
		}
		return err == nil
	}}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- recorder.Run(ctx, e.fileOnNode("/var/run/nri/nri.sock")) }()
	recorded := func(call string, n int) {
		t.Helper()
		e.eventually(fmt.Sprintf("%d calls of %s", n, call), func(context.Context) (bool, error) {
			return strings.Count(recorder.Text(), call) >= n, errors.New(recorder.Text())
		})
	}
	connected := func(n int) {
		t.Helper()
		e.eventually("the recorder is connected", func(context.Context) (bool, error) {
			return recorder.Connections() >= n, nil
		})
	}
	connected(1)
	hostNetwork := strings.Replace(pod("host", ""), "spec:", "spec:\n  hostNetwork: true", 1)
	e.create(documents(hostNetwork, pod("plain", "")))
	e.ready("host", "plain")
	e.deleting("host")
	e.deleting("plain")
	e.gone("host")
	e.gone("plain")
	recorded("RemovePodSandbox", 2) // the kubelet removes sandboxes once per minute
	first := pod("p", "ca0")
	_, container, _ := strings.Cut(first, "  containers:\n")
	e.create(first + strings.Replace(container, "name: main", "name: second", 1))
	e.ready("p")
	e.restart(e.cluster.RuntimeComponent())
	connected(2)
	e.ready("p")
	e.deleting("p")
	e.gone("p")
	recorded("RemoveContainer", 4)
	if e.cluster.RuntimeComponent() == lab.CRIO { // containerd does not report when a pod it did not start terminates
		recorded("RemovePodSandbox", 3)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	name := nritest.Containerd().Name
	if e.cluster.RuntimeComponent() == lab.CRIO {
		name = nritest.CRIO().Name
	}
	if events, err := e.kubectl("", "get", "events", "-A"); err != nil || strings.Contains(events, "RuntimeReports") {
		t.Errorf("the driver reported missing facts, or events cannot be read: %v\n%s", err, events)
	}
	compareRecording(t, filepath.Join("../../plugin/nritest/testdata", name+".txt"), recorder.Text())
}

// compareRecording checks that a recording matches a file or, with recordCalls, writes the file.
func compareRecording(t *testing.T, path, got string) {
	t.Helper()
	if *recordCalls {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("the runtime's calls differ; to accept them, run this test with -record-calls, and change the "+
			"profile in plugin/nritest (-recorded +now):\n%s", diff)
	}
}
