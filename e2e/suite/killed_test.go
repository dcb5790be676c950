package suite

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

// Even if the driver, the runtime or the kubelet is killed at an arbitrary time, nothing is left behind on the node, no
// container runs without its interfaces, and no pod gets stuck.
func TestKilled(t *testing.T) {
	e := newEnv(t, "killed")
	s := e.stage("ki", 132, 0)
	s.observe()

	t.Run("driver after Prepare", s.inTest(func(s *stage) {
		resume := s.preparedOnly("prepared")
		s.signal("dra-network-driver", syscall.SIGKILL)
		resume()
		s.comesAndGoes("prepared")
	}))
	t.Run("driver during RunPodSandbox", s.inTest(func(s *stage) {
		release := s.set("ADD")
		s.pod("running")
		s.pluginRuns()
		s.signal("dra-network-driver", syscall.SIGKILL)
		release()
		s.comesAndGoes("running")
	}))
	t.Run("driver between steps in the background", s.inTest(func(s *stage) {
		release := s.set("ADD")
		s.pod("between")
		s.wrote("between", `"step":"whole"`, `"ADD"`)
		s.event("between", "Failed", "when-attached") // RunPodSandbox has returned
		s.pluginRuns()
		s.signal("dra-network-driver", syscall.SIGKILL)
		release()
		s.comesAndGoes("between")
	}))
	t.Run("driver during StopPodSandbox", s.inTest(func(s *stage) {
		s.pod("stopped")
		s.ready("stopped")
		release := s.set("DEL")
		s.deleting("stopped")
		s.pluginRuns()
		s.signal("dra-network-driver", syscall.SIGKILL)
		release()
		s.goes("stopped")
	}))
	t.Run("driver during Unprepare", s.inTest(func(s *stage) {
		s.pod("released")
		s.ready("released")
		// A restarted runtime does not report that older pods have stopped, so Unprepare rolls back the chain.
		s.restart(s.cluster.RuntimeComponent())
		release := s.set("DEL")
		s.deleting("released")
		s.pluginRuns()
		s.signal("dra-network-driver", syscall.SIGKILL)
		release()
		s.goes("released")
	}))
	for _, component := range []lab.Component{s.cluster.RuntimeComponent(), lab.Kubelet} {
		t.Run(string(component)+" during attach", s.inTest(func(s *stage) {
			release := s.set("ADD")
			name := string(component) + "-attach"
			s.pod(name)
			s.pluginRuns()
			s.restart(component)
			release()
			s.comesAndGoes(name)
		}))
		t.Run(string(component)+" during detach", s.inTest(func(s *stage) {
			name := string(component) + "-detach"
			s.pod(name)
			s.ready(name)
			release := s.set("DEL")
			s.deleting(name)
			s.pluginRuns()
			s.restart(component)
			release()
			s.goes(name)
		}))
	}
}

// inTest returns a subtest that runs part of the stage's test. It first waits until the driver is running.
func (s *stage) inTest(do func(*stage)) func(*testing.T) {
	return func(t *testing.T) {
		if s.Failed() {
			t.Skip("an earlier part failed, so the node is not in the required state")
		}
		copied := *s
		copied.env = s.part(t)
		t.Cleanup(copied.explain)
		copied.driverReady()
		do(&copied)
	}
}

// comesAndGoes waits until a pod is Ready, checks its interfaces, and deletes it.
func (s *stage) comesAndGoes(pod string) {
	s.Helper()
	start := time.Now()
	s.ready(pod)
	s.Logf("the pod was Ready after %s", since(start))
	s.neverStartedEarly()
	s.deleting(pod)
	s.goes(pod)
}

// goes waits until a pod that is being deleted no longer exists, and checks that it has left nothing behind.
func (s *stage) goes(pod string) {
	s.Helper()
	start := time.Now()
	s.gone(pod)
	gone := since(start)
	s.asItWas(s.before)
	s.Logf("the pod was gone after %s, and the node was in its initial state after %s", gone, since(start))
}

// resumed returns a function that resumes a stopped program. The program is also resumed at the end of the test.
func (e *env) resumed(program string) func() {
	resume := func() { e.signal(program, syscall.SIGCONT) }
	e.Cleanup(resume)
	return resume
}

// restart kills a component and starts it again.
func (e *env) restart(component lab.Component) {
	e.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := e.cluster.Restart(ctx, component, syscall.SIGKILL); err != nil {
		e.Fatal(err)
	}
}

// A hung driver is worse than no driver, because the runtime calls it for every pod. The liveness probe soon restarts
// the driver, and the new process works.
func TestDriverThatHangs(t *testing.T) {
	e := newEnv(t, "hangs")
	e.offerMacvlan("ha0", "10.150.0.0/24")
	hung := e.processes(stack.Driver)
	e.signal(stack.Driver, syscall.SIGSTOP)
	t.Cleanup(func() {
		for _, pid := range hung {
			_ = syscall.Kill(pid, syscall.SIGCONT) // the process may have exited
		}
	})
	start := time.Now()
	e.create(pod("p", "ha0"))
	e.eventually("the driver that hangs is replaced", func(context.Context) (bool, error) {
		now := e.processes(stack.Driver)
		return len(now) == 1 &&
			!slices.Contains(hung, now[0]), fmt.Errorf("the processes are %v; the one that hung is %v", now, hung)
	})
	t.Logf("a new driver was running %s after the first one began to hang", since(start))
	e.ready("p")
	e.deleting("p")
	e.gone("p")
}
