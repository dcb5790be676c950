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
	corev1 "k8s.io/api/core/v1"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/plugin/internal/attach"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/nritest"
)

// onRuntimes runs a test with each supported container runtime.
func onRuntimes(t *testing.T, test func(f *fixture)) {
	for _, profile := range nritest.Profiles() {
		t.Run(profile.Name, func(t *testing.T) { test(newFixtureOn(t, profile)) })
	}
}

// startRuntime starts the simulated runtime's process.
func (f *fixture) startRuntime() {
	f.Helper()
	dir, err := os.MkdirTemp("", "nri") // socket paths must be short
	f.must(err)
	f.Cleanup(func() { _ = os.RemoveAll(dir) })
	f.nri.Socket = filepath.Join(dir, "nri.sock")
	f.must(f.runtime.Start(f.nri.Socket))
	f.Cleanup(f.runtime.Stop)
}

// dial makes the driver connect to the runtime and reconnect whenever necessary.
func (f *fixture) dial() (disconnect func()) {
	f.Helper()
	f.nri.setConnected(false)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.nri.run(ctx) }()
	disconnect = func() {
		cancel()
		f.eventually("the driver disconnects", func() bool {
			f.clock.Step(nriRetryMax)
			return len(ended) == 1
		})
	}
	f.Cleanup(disconnect)
	return disconnect
}

// connected waits until the driver is connected to the runtime and can receive the runtime's calls. It advances the
// clock slowly, so that the time limit for connecting is not reached.
func (f *fixture) connected() {
	f.Helper()
	last := time.Now()
	f.eventually("the driver is connected", func() bool {
		if time.Since(last) > 100*time.Millisecond {
			last = time.Now()
			f.clock.Step(nriRetry)
		}
		return f.nri.runtime.isConnected()
	})
	f.runtime.Settle()
}

// restartRuntime restarts the runtime's process and waits until the driver is connected again.
func (f *fixture) restartRuntime() {
	f.Helper()
	f.runtime.Stop()
	f.eventually("the connection has ended", func() bool { return !f.nri.runtime.isConnected() })
	f.must(f.runtime.Start(f.nri.Socket))
	f.connected()
}

// withLimits adds a locked-memory limit to the topology of a prepared claim.
func (f *fixture) withLimits(record claims.Record) {
	f.Helper()
	record.Plans[0].Steps[0].Limits = &v1alpha1.StepLimits{LockedMemory: "1Gi"}
	f.must(f.claims.Hold(record, asItIs))
}

// device returns the name of a claim's CDI device.
func (f *fixture) device(claim string) string { return f.gate.DeviceID(attach.Part{ClaimUID: claim}) }

// podNaming returns a pod whose container c names the given claim.
func podNaming(name, claim string) *corev1.Pod {
	pod := podObject(name, claim)
	pod.Spec.Containers = []corev1.Container{{Name: "c",
		Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: claim}}}}}
	return pod
}

// nodeEvents returns the events for the node since the last call.
func (f *fixture) nodeEvents() (events []string) {
	for {
		select {
		case event := <-f.events.Events:
			events = append(events, event)
		default:
			return events
		}
	}
}

// failures returns the failures that were reported for pods.
func (f *fixture) failures() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.failed, "\n")
}

// Throughout its lifetime, a pod has its interfaces and its containers get their limits, regardless of which properties
// the runtime reports and even if the runtime restarts.
func TestPodOnEachRuntime(t *testing.T) {
	onRuntimes(t, func(f *fixture) {
		ctx := f.Context()
		f.addPod(podNaming("a", "claim-a"))
		f.withLimits(f.prepared("claim-a", "a", "up0"))
		f.startRuntime()
		f.dial()
		f.connected()
		f.must(f.runtime.RunPodSandbox(ctx, sandboxOf("a-0")))
		f.expect(attachedA, "claim-a")
		adjustment, err := f.runtime.CreateContainer(ctx, "a-0", "c", f.device("claim-a"))
		f.must(err)
		if limits := adjustment.GetRlimits(); len(limits) != 1 || limits[0].GetHard() != 1<<30 {
			f.Errorf("wrong limits: %v", limits)
		}
		f.must(f.runtime.StartContainer(ctx, "a-0", "c"))
		f.restartRuntime()
		f.expect(attachedA, "claim-a")
		if events := f.nodeEvents(); len(events) > 0 || f.failures() != "" {
			f.Errorf("got events %q and failures %q, want none", events, f.failures())
		}
		f.must(f.runtime.StopPodSandbox(ctx, "a-0"))
		f.must(f.runtime.RemovePodSandbox(ctx, "a-0"))
		f.must(f.dra.unprepare(ctx, "claim-a"))
		f.expect(clean)
	})
}

// A pod with a running container that uses the interfaces is not attached again after the driver has lost its records
// and files.
func TestRunningPodIsNotAttachedTwice(t *testing.T) {
	onRuntimes(t, func(f *fixture) {
		ctx := f.Context()
		f.prepared("claim-a", "a", "up0")
		f.startRuntime()
		disconnect := f.dial()
		f.connected()
		f.must(f.runtime.RunPodSandbox(ctx, sandboxOf("a-0")))
		_, err := f.runtime.CreateContainer(ctx, "a-0", "c", f.device("claim-a"))
		f.must(errors.Join(err, f.runtime.StartContainer(ctx, "a-0", "c")))
		disconnect()
		socket := f.nri.Socket
		f.crash()
		f.must(errors.Join(os.Remove(filepath.Join(f.dir, "journal.db")), os.RemoveAll(f.cdiDir())))
		f.node.AddHostLink("up0") // so that nothing else prevents another attachment
		f.startAlone("boot-1")
		f.nri.Socket = socket
		f.prepared("claim-a", "a", "up0")
		f.node.ForgetCalls()
		f.dial()
		f.connected()
		f.eventually("the pod has an event", func() bool { return f.failures() != "" })
		if calls := f.node.Calls(); len(calls) > 0 || !strings.Contains(f.failures(), "are already running") {
			f.Errorf("got plugin calls %q and events %q", calls, f.failures())
		}
	})
}

// A sandbox that starts while the driver is connecting is attached, even if the runtime neither lists nor reports it.
func TestSandboxThatStartsWhileTheDriverConnects(t *testing.T) {
	onRuntimes(t, func(f *fixture) {
		f.addPod(withSandbox(podObject("a", "claim-a")))
		f.prepared("claim-a", "a", "up0")
		f.startRuntime()
		f.runtime.BeforeListed = func() {
			f.dial()
			if !f.runtime.HoldsPods {
				f.connected()
			}
		}
		f.must(f.runtime.RunPodSandbox(f.Context(), sandboxOf("a-0")))
		f.connected()
		if missed := f.nri.reported.sandbox("a").PodSandbox == nil; missed == f.runtime.HoldsPods {
			f.Fatalf("the sandbox was missed: %t", missed)
		}
		f.nri.expectSandbox(podNamed("a-0"))
		if !f.runtime.HoldsPods {
			f.eventually("the driver disconnects", func() bool {
				f.clock.Step(missedDelay)
				return !f.nri.runtime.isConnected()
			})
			f.connected()
		}
		f.eventually("the sandbox is attached", func() bool { return f.ready("a-0") })
		f.expect(attachedA, "claim-a")
	})
}

// A pod in the host's network namespace gets no interfaces from claims, whether or not the runtime reports a network
// namespace for it.
func TestPodInTheHostsNetworkOnEachRuntime(t *testing.T) {
	onRuntimes(t, func(f *fixture) {
		f.prepared("claim-a", "a", "up0")
		f.startRuntime()
		f.dial()
		f.connected()
		f.runtime.HostNamespace = "/proc/self/ns/net"
		pod := sandboxOf("a-0")
		pod.HostNetwork = true
		if err := f.runtime.RunPodSandbox(f.Context(), pod); err == nil ||
			!strings.Contains(err.Error(), "uses the host network") {
			f.Errorf("error = %v, want \"uses the host network\"", err)
		}
		f.expect(clean)
	})
}

// If a container is created in the wrong sandbox, the runtime's error contains the reason, although some runtimes drop
// the reason that the hook returns.
func TestContainerInTheWrongSandboxHasAReason(t *testing.T) {
	onRuntimes(t, func(f *fixture) {
		ctx := f.Context()
		f.prepared("claim-a", "a", "up0")
		f.prepared("claim-b", "b", "up1")
		f.startRuntime()
		f.dial()
		f.connected()
		for _, pod := range []string{"a", "b"} {
			f.addPod(podNaming(pod, "claim-"+pod))
			f.must(f.runtime.RunPodSandbox(ctx, sandboxOf(pod+"-0")))
		}
		_, err := f.runtime.CreateContainer(ctx, "a-0", "c", f.device("claim-b"))
		if err == nil || !strings.Contains(err.Error(), "claim-b, which is not attached to its sandbox") ||
			!strings.Contains(f.failures(), "claim-b, which is not attached") {
			f.Errorf("error = %v, events = %q", err, f.failures())
		}
		_, err = f.runtime.CreateContainer(ctx, "a-0", "c", f.device("claim-a"))
		f.must(err)
	})
}

// If a runtime does not report everything that a guarantee requires, one event per connection is created for the node.
func TestRuntimeThatReportsTooLittle(t *testing.T) {
	f := newFixtureOn(t, nritest.Mute())
	ctx := f.Context()
	f.addPod(podNaming("a", "claim-a"))
	f.prepared("claim-a", "a", "up0")
	f.startRuntime()
	f.dial()
	f.connected()
	f.must(f.runtime.RunPodSandbox(ctx, sandboxOf("a-0")))
	check := func() {
		t.Helper()
		if events := f.nodeEvents(); len(events) != 1 || !strings.Contains(events[0],
			"Warning RuntimeReportsTooLittle "+missingClaims) {
			t.Errorf("wrong events: %q", events)
		}
		if facts := f.driver().state().MissingFacts; len(facts) != 1 || facts[0] != missingClaims {
			t.Errorf("wrong missing facts in the state: %q", facts)
		}
	}
	for range 2 {
		_, err := f.runtime.CreateContainer(ctx, "a-0", "c", f.device("claim-a"))
		f.must(err)
	}
	check()
	f.restartRuntime()
	check()
}

// If no namespaces are reported for a sandbox, this does not mean that the pod is in the host's network namespace.
func TestRuntimeThatReportsNoNamespaces(t *testing.T) {
	f := newFixture(t)
	f.prepared("claim-a", "a", "up0")
	err := f.nri.RunPodSandbox(t.Context(), &api.PodSandbox{Id: "a-0", Uid: "a", Name: "a", Namespace: "ns"})
	if err == nil || !strings.Contains(err.Error(), missingNamespaces) {
		t.Errorf("error = %v, want an error about missing namespaces", err)
	}
	if events := f.nodeEvents(); len(events) != 1 || !strings.Contains(events[0], missingNamespaces) {
		t.Errorf("events = %q, want one about missing namespaces", events)
	}
}
