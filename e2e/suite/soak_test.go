package suite

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

// Options for the soak test.
var (
	soakTime = flag.Duration("soak", 0, "how long pods come and go while components are killed; 0: not at all")
	soakSeed = flag.Uint64("seed", 0, "what random decisions are made from; 0: another one each time")
	soakLog  = flag.String("soak-log", "", "file for all that the driver logs during the soak; kubelet keeps only "+
		"the end of it")
)

// A soak test that takes longSoak or more also stops the API server for longOutage, after the first round of kills and
// then every outagePeriod. No component is killed for a period of longOutage after an outage, because clients may take
// that long to reconnect.
const (
	longSoak     = 2 * time.Minute
	longOutage   = time.Minute
	outagePeriod = 5 * time.Minute
)

// Pods of every kind are created and deleted, each kind at its own rate, while the driver, the runtime and the kubelet
// are killed at random. No container runs without its interfaces, an exclusive device is in only one pod at a time, no
// pod gets stuck, and nothing is left behind at the end.
func TestSoak(t *testing.T) {
	if *soakTime == 0 {
		t.Skip("takes a long time and is not deterministic; run `make soak`")
	}
	seed := *soakSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("to repeat the decisions: -soak=%s -seed=%d", *soakTime, seed)
	e := newEnv(t, "soak")
	e.apply(slowMacvlan)
	kinds := e.soakKinds()
	before := e.state()
	e.observe("so2")
	s := soak{env: e, end: time.Now().Add(*soakTime), kills: map[string]int{}, lastReady: map[string]time.Time{}}
	var group sync.WaitGroup
	defer group.Wait() // even if the kills fail
	for i, kind := range kinds {
		random := rand.New(rand.NewPCG(seed, uint64(i+1))) //nolint:gosec // it must be repeatable
		group.Go(func() { s.churn(random, fmt.Sprintf("%s-%d", kind.template, i), kind) })
	}
	s.killAll(rand.New(rand.NewPCG(seed, 0))) //nolint:gosec // as above
	group.Wait()
	t.Logf("%d pods started and ended; kills: %v", s.pods, s.kills)
	for _, program := range slices.Sorted(maps.Keys(s.kills)) {
		if s.kills[program] == 0 {
			t.Errorf("%s was never killed, so the test is too short", program)
		}
	}
	if s.pods == 0 {
		t.Error("no pod became Ready")
	}
	e.driverReady()
	s.keepLog()
	e.asItWas(before)
}

// soakKind is a kind of pod. One pod of each kind exists at a time.
type soakKind struct {
	template   string
	interfaces []string
}

// soakKinds publishes devices for several kinds of pods: with an exclusive link, with a link that only a single pod may
// use, with shared links, with a slow chain, and with two interfaces. It returns those kinds.
func (e *env) soakKinds() []soakKind {
	e.Helper()
	for i := range 4 {
		e.veth(fmt.Sprintf("so%d", i))
	}
	step := `
- name: link
  type: %s
  selector: {cel: 'device.attributes["dra.networking"].ifName == "so%d"'}
  config: {ipam: {type: host-local, subnet: 10.15%d.0.0/24}%s}`
	e.apply(documents(
		expose("so0", "macvlan", true, "so0"), topology("shared", fmt.Sprintf(step, "macvlan", 0, 0, "")),
		claimTemplate("shared", "shared-link"),
		expose("so1", "netdev", false, "so1"), topology("whole", fmt.Sprintf(step, "netdev", 1, 1, "")),
		claimTemplate("whole", "whole-link"),
		expose("so2", "macvlan", false, "so2"), topology("single", fmt.Sprintf(step, "macvlan", 2, 2, "")),
		claimTemplate("single", "single-link"),
		expose("so3", "slow-macvlan", true, "so3"), topology("slow",
			fmt.Sprintf(step, "slow-macvlan", 3, 3, ", seconds: 1.5")), claimTemplate("slow", "slow-link"),
		claimTemplate("pair", "shared-link", "slow-link"),
	))
	e.offer("so0", "so1", "so2", "so3")
	single := []string{"net1"}
	return []soakKind{{"shared", single}, {"shared", single}, {"shared", single}, {"whole", single}, {"single", single},
		{"single", single}, {"slow", single}, {"pair", []string{"net1", "net2"}}}
}

type soak struct {
	*env
	end time.Time

	mu        sync.Mutex
	pods      int
	kills     map[string]int
	lastReady map[string]time.Time // by template
}

// churn creates pods of one kind, one after the other.
func (s *soak) churn(random *rand.Rand, name string, kind soakKind) {
	for i := 0; time.Now().Before(s.end); i++ {
		pod := fmt.Sprintf("%s-%d", name, i)
		yaml := watchedPod(pod, "resourceClaimTemplateName: "+kind.template, kind.interfaces...)
		if !s.try("create", func() (string, error) { return s.kubectl(yaml, "create", "-f", "-") }) ||
			!s.waitReady(pod, kind.template) {
			s.Errorf("pod %s is stuck", pod)
			return
		}
		if seen, err := s.client.CoreV1().Pods(s.namespace).Get(context.Background(), pod,
			metav1.GetOptions{}); err == nil && startedEarly(seen, "main") {
			s.Errorf("pod %s was started without its interfaces", pod)
		}
		time.Sleep(time.Duration(random.Int64N(int64(2 * time.Second)))) // pods run for a while
		if !s.try("delete", func() (string, error) {
			return s.kubectl("", "delete", "pod", pod, "--ignore-not-found", "--timeout=60s")
		}) {
			s.Errorf("pod %s did not end", pod)
			return
		}
		s.mu.Lock()
		s.pods++
		s.mu.Unlock()
	}
}

// waitReady waits until a pod is Ready. Two kinds of pods compete for one device, and the scheduler may repeatedly
// prefer pods of the other kind. Therefore, an unscheduled pod is considered stuck only if no other pod from its
// template becomes Ready either.
func (s *soak) waitReady(pod, template string) bool {
	progress := time.Now()
	for time.Since(progress) < 4*patience {
		seen, err := s.client.CoreV1().Pods(s.namespace).Get(context.Background(), pod, metav1.GetOptions{})
		if err == nil && isReady(seen) {
			s.mu.Lock()
			s.lastReady[template] = time.Now()
			s.mu.Unlock()
			return true
		}
		if err == nil && seen.Spec.NodeName == "" {
			s.mu.Lock()
			if latest := s.lastReady[template]; latest.After(progress) {
				progress = latest
			}
			s.mu.Unlock()
		}
		time.Sleep(200 * time.Millisecond)
	}
	return false
}

// try repeats an operation until it succeeds. The API server may be down, and once it is back, another pod may hold the
// device for just as long.
func (s *soak) try(what string, do func() (string, error)) bool {
	var output string
	var err error
	for end := time.Now().Add(4 * patience); time.Now().Before(end); time.Sleep(time.Second) {
		if output, err = do(); err == nil || strings.Contains(output, "AlreadyExists") {
			return true
		}
	}
	s.Errorf("cannot %s: %v\n%s", what, err, output)
	return false
}

// killAll kills one component after another, in rounds, each in random order. The pauses are random, so a component
// might not have recovered before the next kill.
func (s *soak) killAll(random *rand.Rand) {
	components := map[string]func(){
		stack.Driver:        s.killDriver,
		"runtime":           func() { s.restart(s.cluster.RuntimeComponent()) },
		string(lab.Kubelet): func() { s.restart(lab.Kubelet) },
	}
	names := slices.Sorted(maps.Keys(components))
	for _, name := range names {
		s.kills[name] = 0
	}
	var outage time.Time
	for {
		random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		for _, name := range names {
			time.Sleep(time.Second + time.Duration(random.Int64N(int64(5*time.Second)))) // let components work
			if !time.Now().Before(s.end) {
				return
			}
			components[name]()
			s.kills[name]++
		}
		if *soakTime >= longSoak && time.Since(outage) > outagePeriod {
			outage = time.Now()
			s.outage()
		}
	}
}

// outage stops the API server for a while.
func (s *soak) outage() {
	restore := s.stopAPIServer()
	s.kills[string(lab.APIServer)]++
	time.Sleep(longOutage) // the outage
	restore()
	time.Sleep(longOutage) // see longSoak
}

// killDriver kills the driver, if it is running, and the plugins that it has started.
func (s *soak) killDriver() {
	for _, pid := range s.processes(stack.Driver) {
		s.keepLog()
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have exited
	}
}

// keepLog appends the driver's log to the soak test's log file, if there is one.
func (s *soak) keepLog() {
	if *soakLog == "" {
		return
	}
	logs := s.filesOnNode("/var/log/pods", stack.Namespace+"_"+stack.Driver+"*", "driver", "*.log")
	if len(logs) == 0 {
		return
	}
	// sort by the restart number
	slices.SortFunc(logs, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	data, err := os.ReadFile(logs[len(logs)-1])
	if err != nil {
		s.Error(err)
	}
	file, err := os.OpenFile(*soakLog, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.Error(err)
		return
	}
	if _, err := file.Write(data); err != nil {
		s.Error(err)
	}
	_ = file.Close()
}
