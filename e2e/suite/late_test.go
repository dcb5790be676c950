package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A chain takes six seconds, which is three times the runtime's timeout. The first attempt fails: the chain is rolled
// back, the containers do not start, and an event reports the reason. A later attempt succeeds, and the same pod then
// starts immediately. Other pods never have to wait for this pod.
func TestChainOfSixSeconds(t *testing.T) {
	e := newEnv(t, "six")
	s := e.stage("si", 131, 6)
	e.observe()
	// hold the plugin for six seconds, or until other pods have started if that takes longer on this machine
	succeed, release := s.set("FAIL"), s.set("ADD")
	start := time.Now()
	e.create(watchedPod("p", "resourceClaimTemplateName: si", whole, second) +
		watchedContainer("unnamed", "p", "[]", whole, second) + // also held back while the driver is running
		"  initContainers:\n" + watchedContainer("init", "p", "[{name: net}]", whole, second) +
		"    restartPolicy: Always\n")
	s.pluginRuns()
	e.startOthers(s)
	release()
	e.event("p", "NetworkAttachFailed", `step "late" (slow-macvlan) of topology si`, "the test wants a failure")
	t.Logf("the chain failed after %s; in the meantime, other pods became Ready", since(start))
	s.undone()
	if started := e.containersOf("p"); len(started) > 0 {
		t.Errorf("containers started although the chain had failed: %v", started)
	}
	before := e.pod("p")
	succeed()

	start = time.Now()
	s.pluginRuns()
	t.Logf("the chain was retried after %s", since(start))
	s.moment("the plugin has ended", func() bool { return len(s.processes("slow-macvlan")) == 0 })
	attached := time.Now()
	var processes []int // retry, since a process in the middle of execve is not found
	e.moment("the first container runs", func() bool { processes = e.containersOf("p"); return len(processes) > 0 })
	first := e.started(processes[0]).Sub(attached).Round(10 * time.Millisecond)
	e.ready("p")
	t.Logf("after the chain, the first container started in %s, the pod was Ready in %s", first, since(attached))
	if first > 5*time.Second {
		t.Errorf("the kubelet was not woken up: the container started %s after the chain", first)
	}
	after := e.pod("p")
	if after.UID != before.UID {
		t.Errorf("the pod was replaced: its UID is %s, before: %s", after.UID, before.UID)
	}
	for _, container := range []string{"main", "unnamed", "init"} {
		if startedEarly(after, container) {
			t.Errorf("container %s started without its interfaces", container)
		}
	}
	e.deleting("p")
	s.goes("p")
}

// startOthers starts pods one after the other while the slow plugin is running. The plugin must still be running when
// they are Ready.
func (e *env) startOthers(s *stage) {
	e.Helper()
	for _, name := range []string{"other-a", "other-b"} {
		start := time.Now()
		e.create(pod(name, ""))
		e.ready(name)
		if len(s.processes("slow-macvlan")) == 0 {
			e.Errorf("pod %s became Ready only after the chain, want it during the chain", name)
		}
		e.Logf("another pod was Ready after %s", since(start))
	}
	e.deleting("other-a", "other-b")
}

// undone waits until the links are back in their initial state and no address is allocated. The claim stays prepared
// and reserved.
func (s *stage) undone() {
	s.Helper()
	isLease := func(file string) bool { return strings.HasPrefix(file, "/var/lib/cni/") }
	s.eventually("the chain is rolled back", func(ctx context.Context) (bool, error) {
		now, err := s.nodeState(ctx)
		diff := cmp.Diff(s.before.Links, now.Links)
		if slices.ContainsFunc(now.Files, isLease) {
			diff += fmt.Sprintf("files are %q", now.Files)
		}
		return err == nil && diff == "", errors.Join(err, errors.New(diff))
	})
}

func (e *env) pod(name string) *corev1.Pod {
	e.Helper()
	found, err := e.client.CoreV1().Pods(e.namespace).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	return found
}
