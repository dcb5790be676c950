package suite

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-networking/dra-network-driver/e2e/internal/process"
	"github.com/dra-networking/dra-network-driver/e2e/lab"
	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

var (
	modelTime    = flag.Duration("model", time.Minute, "how long TestModel injects faults")
	modelJournal = flag.Bool("model-journal", false, "have TestModel lose the journal at the end, and wait for pods "+
		"that kubelet tries again after minutes")
)

// TestModel tests the invariant in docs/concepts.md with random sequences of faults and various kinds of pods: a
// container that references a claim runs only in a network namespace that the claim is attached to. A container that
// starts too early exits with status [early]. Once the faults are over, every pod becomes Ready without intervention,
// and deleting the pods leaves nothing behind.
func TestModel(t *testing.T) {
	seed := *soakSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("to repeat the decisions: -model=%s -seed=%d", *modelTime, seed)
	e := newEnv(t, "model")
	m := &model{env: e, random: rand.New(rand.NewPCG(seed, 1)), done: map[string]int{}} //nolint:gosec // it must be repeatable
	m.offer()
	before := e.state()
	m.makePods()
	m.ready(m.pods()...)
	m.shadow()
	for end := time.Now().Add(*modelTime); time.Now().Before(end) && !t.Failed(); {
		m.round()
	}
	m.settle()
	if *modelJournal {
		m.withoutJournal()
	}
	t.Logf("injected faults: %v; inspected containers: %d", m.done, m.looked)
	m.removePods()
	e.asItWas(before)
}

// model is the state of TestModel: the faults, and one pod of each kind at a time.
type model struct {
	*env
	random *rand.Rand
	// generation is the number of pods created so far, by kind.
	generation map[string]int
	// restore contains the functions that repair lasting faults.
	restore []func()
	done    map[string]int
	looked  int
	// without is a kind that currently has no pod.
	without string
}

// withoutJournal simulates the loss of the journal. Pods keep running, their containers can restart, and new sandboxes
// get their interfaces. All other data in the journal is lost (docs/limits.md). Therefore, no pod may hold a whole link
// when the journal is lost, and all pods are replaced afterwards.
func (m *model) withoutJournal() {
	m.Helper()
	last := m.name("whole")
	m.without = "whole"
	m.deleting(last)
	m.gone(last)
	m.link("mo1") // wait until it is on the node
	m.eventually("files that were removed are back", func(context.Context) (bool, error) {
		for _, gate := range m.filesOnNode("/var/run/cdi", "dra.networking-*.json") {
			uid := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(gate), "dra.networking-"), ".json")
			if len(m.filesOnNode("/var/run/cdi", "dra.networking_metadata_"+uid+"_*.json")) == 0 {
				return false, fmt.Errorf("claim %s has no metadata", uid)
			}
		}
		return true, nil
	})
	m.loseJournal()
	m.kill("container", m.some(m.containerProcesses())...)
	m.driverReady()
	m.kill("container", m.some(m.containerProcesses())...)
	m.restart(lab.Kubelet)
	m.settle()
	m.kill("pause", m.some(m.sandboxes())...) // the kubelet does not prepare claims again for new sandboxes
	m.without = ""
	m.generation["whole"]++
	m.make("whole")
	m.settle()
	m.done["journal lost"]++
	for _, kind := range modelKinds() {
		m.replace(kind)
	}
	m.settle()
}

// replace deletes the current pod of the given kind and creates a new one.
func (m *model) replace(kind string) {
	m.Helper()
	old := m.name(kind)
	m.generation[kind]++
	m.deleting(old)
	m.make(kind)
	m.done["replaced "+kind]++
}

// modelKinds returns the kinds of pods, which differ in how a pod references its claim.
func modelKinds() []string {
	return []string{"template", "shared1", "shared2", "extended", "sidecar", "init", "whole"}
}

// offer creates links, topologies and claims. Addresses are static, because leases would be left behind when the
// journal is lost: its content cannot be recovered (docs/limits.md). The links carry no traffic.
func (m *model) offer() {
	m.Helper()
	m.generation = map[string]int{}
	for _, name := range []string{"mo0", "mo1"} {
		m.veth(name)
	}
	static := "ipam: {type: static, addresses: [{address: 10.140.0.1/24}]}"
	step := `
- name: link
  type: %s
  selector: {cel: 'device.attributes["dra.networking"].ifName == "%s"'}
  config: {%s}`
	m.apply(documents(
		expose("mo0", "macvlan", true, "mo0"), topology("model", fmt.Sprintf(step, "macvlan", "mo0", static)),
		claimTemplate("model", "model-link"),
		expose("mo1", "netdev", false, "mo1"), topology("model-whole", fmt.Sprintf(step, "netdev", "mo1", static)),
		claimTemplate("model-whole", "model-whole-link"),
		m.extendedClass(), `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: model-shared}
spec:
  devices:
    requests: [{name: r0, exactly: {deviceClassName: model-link}}]
`))
	m.env.offer("mo0", "mo1")
}

// extendedClass returns a class like one that a platform team would write, which pods request by its extended resource
// name.
func (m *model) extendedClass() string {
	return `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: model-extended}
spec:
  extendedResourceName: example.com/model
  selectors:
  - cel: {expression: 'device.driver == "dra.networking" && device.attributes["dra.networking"].ifName == "mo0"'}
  config:
  - opaque:
      driver: dra.networking
      parameters: {apiVersion: networking.dra.io/v1alpha1, kind: StepParameters, networkTopologyRef: {name: model}, step: link}
`
}

func (m *model) pods() []string {
	var names []string
	for _, kind := range modelKinds() {
		if kind != m.without {
			names = append(names, m.name(kind))
		}
	}
	return names
}

func (m *model) name(kind string) string { return fmt.Sprintf("%s-%d", kind, m.generation[kind]) }

func (m *model) makePods() {
	for _, kind := range modelKinds() {
		m.make(kind)
	}
}

// make creates a pod. In this test, the API server is always available.
func (m *model) make(kind string) {
	m.Helper()
	name := m.name(kind)
	yaml := watchedPod(name, "resourceClaimTemplateName: model", whole)
	switch kind {
	case "shared1", "shared2":
		yaml = watchedPod(name, "resourceClaimName: model-shared", whole)
	case "whole":
		yaml = watchedPod(name, "resourceClaimTemplateName: model-whole", whole)
	case "sidecar": // has no claim, like sidecars injected by webhooks; may start before the interfaces exist
		yaml += `  - name: sidecar
    image: localhost/toolbox:e2e
    imagePullPolicy: IfNotPresent
    command: [sleep, "86400"]
`
	case "init":
		yaml += "  initContainers:\n" + watchedContainer("init", name, "[{name: net}]", whole) +
			"    restartPolicy: Always\n"
	case "extended":
		yaml = fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {watched: "true"}}
spec:
  terminationGracePeriodSeconds: 1
  automountServiceAccountToken: false
  containers:
%s`, name, strings.Replace(watchedContainer("main", name, "[]", whole), "resources: {claims: []}",
			"resources: {limits: {example.com/model: 1}}", 1))
	}
	m.create(yaml)
}

// round injects a fault, sometimes replaces a pod, and inspects the pods. The time between faults is random and
// sometimes short.
func (m *model) round() {
	m.Helper()
	faults := m.faults()
	names := make([]string, 0, len(faults))
	for name := range faults {
		names = append(names, name)
	}
	slices.Sort(names)
	name := names[m.random.IntN(len(names))]
	m.done[name]++
	faults[name]()
	if m.random.IntN(3) == 0 {
		m.replace(modelKinds()[m.random.IntN(len(modelKinds()))])
	}
	time.Sleep(time.Duration(m.random.Int64N(int64(4 * time.Second)))) // let faults take effect
	m.inspect()
	if m.random.IntN(4) == 0 { // sometimes let everything settle
		m.settle()
	}
}

// faults returns the functions that inject faults on a node, by name.
func (m *model) faults() map[string]func() {
	return map[string]func(){
		"driver killed": func() { m.kill(stack.Driver) },
		"driver stopped": func() {
			m.try("stop the driver", "-n", stack.Namespace, "delete", "pod", "-l", "app.kubernetes.io/name="+
				stack.Driver, "--wait=false")
		},
		"NRI away": func() {
			m.hideNRI()
			m.kill(stack.Driver)
		},
		"runtime killed": func() { m.restart(m.cluster.RuntimeComponent()) },
		"runtime killed with its monitors": func() {
			m.kill(m.monitor(), m.some(m.processes(m.monitor()))...)
			m.restart(m.cluster.RuntimeComponent())
		},
		"sandboxes killed":  func() { m.kill("pause", m.some(m.sandboxes())...) },
		"containers killed": func() { m.kill("container", m.some(m.containerProcesses())...) },
		"kubelet killed":    func() { m.restart(lab.Kubelet) },
		"CDI files removed": m.removeSpecs,
	}
}

// monitor returns the name of the program that the runtime starts for each sandbox or container and that outlives the
// runtime.
func (m *model) monitor() string {
	if m.cluster.RuntimeComponent() == lab.CRIO {
		return "conmon"
	}
	return "containerd-shim-runc-v2"
}

// some returns a random selection of at least one process.
func (m *model) some(pids []int) []int {
	if len(pids) == 0 {
		return []int{}
	}
	m.random.Shuffle(len(pids), func(i, j int) { pids[i], pids[j] = pids[j], pids[i] })
	return pids[:1+m.random.IntN(len(pids))]
}

// sandboxes returns the pause processes of the watched pods.
func (m *model) sandboxes() []int {
	var pids []int
	for _, pid := range m.allProcesses("pause") {
		namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err != nil {
			continue
		}
		for _, sleeping := range m.containerProcesses() {
			if other, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", sleeping)); err == nil && other == namespace {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}

// containerProcesses returns the processes of the running watched containers.
func (m *model) containerProcesses() []int {
	var pids []int
	for _, pod := range m.pods() {
		pids = append(pids, m.containersOf(pod)...)
	}
	return pids
}

// allProcesses returns all processes on the machine that run a program, regardless of their namespaces.
func (m *model) allProcesses(program string) []int {
	m.Helper()
	pids, err := process.PIDs(process.Runs(program))
	if err != nil {
		m.Fatal(err)
	}
	return pids
}

// kill kills the given processes of a program, or all of its processes in the node's network namespace if none are
// given.
func (m *model) kill(program string, pids ...int) {
	m.Helper()
	if pids == nil {
		pids = m.processes(program)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			m.Fatalf("cannot kill %s: %v", program, err)
		}
	}
}

// hideNRI hides the runtime's NRI socket from newly started drivers until it is restored.
func (m *model) hideNRI() {
	m.Helper()
	const socket = "/run/nri/nri.sock"
	path := m.fileOnNode(socket)
	hidden := path + ".hidden"
	if err := os.Rename(path, hidden); err != nil {
		return // the socket is already hidden, or the runtime is about to create it
	}
	m.restore = append(m.restore, func() {
		if _, err := os.Lstat(path); err == nil { // the runtime has been restarted and has created a new socket
			_ = os.Remove(hidden)
			return
		}
		if err := os.Rename(hidden, path); err != nil {
			m.Error(err)
		}
	})
}

func (m *model) removeSpecs() {
	m.Helper()
	for _, path := range m.filesOnNode("/var/run/cdi", "*dra.networking*") {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			m.Error(err)
		}
	}
}

// loseJournal truncates the journal while the driver is stopped, and kills the driver.
func (m *model) loseJournal() {
	m.Helper()
	drivers := m.processes(stack.Driver)
	for _, pid := range drivers {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
	if err := os.Truncate(m.fileOnNode("/var/lib/kubelet/plugins/dra.networking/journal.db"), 100); err != nil {
		m.Error(err)
	}
	m.kill(stack.Driver, drivers...)
}

// inspect fails the test if any container started without its interfaces.
func (m *model) inspect() {
	m.Helper()
	pods, err := m.client.CoreV1().Pods(m.namespace).List(context.Background(),
		metav1.ListOptions{LabelSelector: "watched=true"})
	if err != nil {
		m.Fatal(err)
	}
	for i := range pods.Items {
		for _, container := range []string{"main", "init"} {
			m.looked++
			if startedEarly(&pods.Items[i], container) {
				m.Errorf("container %s of pod %s was started without its interfaces", container, pods.Items[i].Name)
			}
		}
	}
}

// settle repairs lasting faults, and waits until every pod is Ready.
func (m *model) settle() {
	m.Helper()
	for _, restore := range m.restore {
		restore()
	}
	m.restore = nil
	m.done["rests"]++
	m.driverReady()
	for _, pod := range m.pods() {
		m.eventuallyReady(pod)
	}
	m.inspect()
}

// eventuallyReady waits longer than [env.ready]: each time a container exits, the kubelet doubles the delay before it
// restarts the container, up to five minutes.
func (m *model) eventuallyReady(name string) {
	m.Helper()
	var last string
	for end := time.Now().Add(stuckAfter); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		pod, err := m.client.CoreV1().Pods(m.namespace).Get(context.Background(), name, metav1.GetOptions{})
		if err == nil && isReady(pod) {
			return
		}
		last = fmt.Sprint(err, describe(pod))
	}
	m.Fatalf("pod %s is stuck: %s", name, last)
}

// stuckAfter is the time after which a pod that is not Ready is considered stuck.
const stuckAfter = 7 * time.Minute

func describe(pod *corev1.Pod) string {
	if pod == nil {
		return ""
	}
	var text strings.Builder
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if waiting := status.State.Waiting; waiting != nil {
			fmt.Fprintf(&text, " %s: %s %s;", status.Name, waiting.Reason, waiting.Message)
		}
	}
	return text.String()
}

func (m *model) removePods() {
	m.Helper()
	names := m.pods()
	m.deleting(names...)
	m.gone(names...)
}

// try runs kubectl and only logs failures, because the driver is not their cause.
func (m *model) try(what string, args ...string) {
	if output, err := m.kubectl("", args...); err != nil {
		m.Logf("cannot %s: %v\n%s", what, err, output)
	}
}

// shadow watches every container from the outside during the test.
func (m *model) shadow() { m.observe() }
