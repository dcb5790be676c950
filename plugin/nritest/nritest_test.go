package nritest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
)

// For a pod with two containers that name a claim, a simulated runtime makes the same calls as the real one, even if
// the runtime is restarted. TestRuntimeCalls in e2e/suite creates the recordings.
func TestRuntimesCallLikeTheRecordedOnes(t *testing.T) {
	for _, profile := range Profiles() {
		t.Run(profile.Name, func(t *testing.T) {
			want, err := os.ReadFile(filepath.Join("testdata", profile.Name+".txt"))
			if err != nil {
				t.Fatal(err)
			}
			got := recordLife(t, profile)
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("calls differ (-recorded +simulated):\n%s", diff)
			}
		})
	}
}

// recordLife records the calls during the lifetime of a pod.
func recordLife(t *testing.T, profile Profile) string {
	t.Helper()
	ctx, dir := t.Context(), t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	gate := filepath.Join(dir, nodeapi.GateName("u"))
	spec, err := nodeapi.EncodeGate(gate, "dra.networking/interfaces", "ns/c", []specs.Device{{Name: "d",
		ContainerEdits: specs.ContainerEdits{Env: []string{"DRA_NETWORK_CLAIM_U=attached"}}}}, nil, "/helper")
	must(err)
	must(os.WriteFile(gate, spec, 0o600))
	node := cnitest.NewNode()
	runtime := New(profile, node, dir)
	socket := filepath.Join(dir, "nri.sock")
	must(runtime.Start(socket))
	defer runtime.Stop()
	recorder := &Recorder{Namespace: "ns", Exists: node.Exists}
	connections := func(n int) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); recorder.Connections() < n; {
			if time.Now().After(end) {
				t.Fatalf("the recorder did not connect within 20 s:\n%s", recorder.Text())
			}
			time.Sleep(time.Millisecond)
		}
		runtime.Settle()
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() { _ = recorder.Run(ctx, socket) }() // returns when the test ends
	connections(1)
	const id = "01234567-89ab-cdef-0123-456789abcde"
	run := func(pod Pod, container string, devices ...string) {
		t.Helper()
		if container == "main" {
			must(runtime.RunPodSandbox(ctx, pod))
		}
		_, err := runtime.CreateContainer(ctx, pod.ID, container, devices...)
		must(err)
		must(runtime.StartContainer(ctx, pod.ID, container))
	}
	end := func(pod Pod) {
		t.Helper()
		must(runtime.StopPodSandbox(ctx, pod.ID))
		must(runtime.RemovePodSandbox(ctx, pod.ID))
	}
	for _, pod := range []Pod{
		{ID: id + "1", Name: "host", Namespace: "ns", HostNetwork: true}, {ID: id + "2", Name: "plain", Namespace: "ns"},
	} {
		run(pod, "main")
		end(pod)
	}
	pod := Pod{ID: id + "f", Name: "p", Namespace: "ns"}
	for _, name := range []string{"main", "second"} {
		run(pod, name, "dra.networking/interfaces=d")
	}
	runtime.Stop()
	must(runtime.Start(socket))
	connections(2)
	end(pod)
	return recorder.Text()
}
