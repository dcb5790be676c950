package nritest

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
)

// Recorder is an NRI plugin that records, as text, the calls for the pods in a namespace: the order of the calls, and
// those properties of sandboxes and containers that the driver depends on.
type Recorder struct {
	// Namespace is the namespace of the recorded pods.
	Namespace string
	// Exists reports whether a path exists on the node.
	Exists func(path string) bool

	mu          sync.Mutex
	connections int
	calls       map[string][]string // by pod
}

// Run records until ctx is done. It reconnects if the connection is lost.
func (r *Recorder) Run(ctx context.Context, socket string) error {
	for ctx.Err() == nil {
		plugin, err := stub.New(r, stub.WithPluginName("recorder"), stub.WithPluginIdx("10"),
			stub.WithSocketPath(socket), stub.WithOnClose(func() {}))
		if err != nil {
			return err
		}
		_ = plugin.Run(ctx) // returns when the runtime stops
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// Text returns the recorded calls for each pod, one per line.
func (r *Recorder) Text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := ""
	for _, pod := range slices.Sorted(maps.Keys(r.calls)) {
		text += "pod " + pod + "\n  " + strings.Join(r.calls[pod], "\n  ") + "\n"
	}
	return text
}

// Connections returns the number of connections made to the runtime so far.
func (r *Recorder) Connections() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.connections
}

func (r *Recorder) add(pod *api.PodSandbox, call, facts string) {
	if pod.GetNamespace() != r.Namespace {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	name := pod.GetName()
	if r.calls == nil {
		r.calls = map[string][]string{}
	}
	r.calls[name] = append(r.calls[name], strings.TrimRight(call+": "+facts, " :"))
}

// Synchronize records a new connection.
func (r *Recorder) Synchronize(
	_ context.Context, pods []*api.PodSandbox, containers []*api.Container,
) ([]*api.ContainerUpdate, error) {
	slices.SortFunc(containers, func(a, b *api.Container) int { return strings.Compare(a.GetName(), b.GetName()) })
	for _, pod := range pods {
		r.add(pod, "Synchronize", r.describe(pod))
		for _, container := range containers {
			if container.GetPodSandboxId() == pod.GetId() {
				state := strings.ToLower(strings.TrimPrefix(container.GetState().String(), "CONTAINER_"))
				r.add(pod, "Synchronize "+container.GetName()+" "+state, describeContainer(container))
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.connections++
	return nil, nil
}

// identifiers matches the part of a path that differs for each sandbox.
var identifiers = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

func (r *Recorder) describe(pod *api.PodSandbox) string {
	text := ""
	if pod.GetPid() != 0 {
		text = "process, "
	}
	return text + r.describeNamespace(pod)
}

func (r *Recorder) describeNamespace(pod *api.PodSandbox) string {
	for _, namespace := range pod.GetLinux().GetNamespaces() {
		if namespace.GetType() != "network" {
			continue
		}
		state := "removed"
		if r.Exists(namespace.GetPath()) {
			state = "exists"
		}
		return identifiers.ReplaceAllString(namespace.GetPath(), "UUID") + " " + state
	}
	return "no network namespace"
}

func describeContainer(container *api.Container) string {
	var facts []string
	if len(container.GetCDIDevices()) > 0 {
		facts = append(facts, "CDI devices")
	}
	for _, hook := range container.GetHooks().GetCreateRuntime() {
		if _, ours := nodeapi.ClaimOfHook(hook.GetArgs()); ours {
			facts = append(facts, "hook")
		}
	}
	if slices.ContainsFunc(container.GetEnv(),
		func(variable string) bool { return strings.HasPrefix(variable, "DRA_NETWORK_CLAIM_") }) {
		facts = append(facts, "variable")
	}
	return strings.Join(facts, ", ")
}

// RunPodSandbox records the call.
func (r *Recorder) RunPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	r.add(pod, "RunPodSandbox", r.describe(pod))
	return nil
}

// StopPodSandbox records the call without the process, since whether the process has already exited depends on timing.
func (r *Recorder) StopPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	r.add(pod, "StopPodSandbox", r.describeNamespace(pod))
	return nil
}

// RemovePodSandbox records the call.
func (r *Recorder) RemovePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	r.add(pod, "RemovePodSandbox", r.describe(pod))
	return nil
}

// CreateContainer records the call.
func (r *Recorder) CreateContainer(
	_ context.Context, pod *api.PodSandbox, container *api.Container,
) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	r.add(pod, "CreateContainer "+container.GetName(), describeContainer(container))
	return nil, nil, nil
}

// PostCreateContainer records the call.
func (r *Recorder) PostCreateContainer(_ context.Context, pod *api.PodSandbox, container *api.Container) error {
	r.add(pod, "PostCreateContainer "+container.GetName(), describeContainer(container))
	return nil
}

// StartContainer records the call.
func (r *Recorder) StartContainer(_ context.Context, pod *api.PodSandbox, container *api.Container) error {
	r.add(pod, "StartContainer "+container.GetName(), describeContainer(container))
	return nil
}

// PostStartContainer records the call.
func (r *Recorder) PostStartContainer(_ context.Context, pod *api.PodSandbox, container *api.Container) error {
	r.add(pod, "PostStartContainer "+container.GetName(), describeContainer(container))
	return nil
}

// StopContainer records the call.
func (r *Recorder) StopContainer(
	_ context.Context, pod *api.PodSandbox, container *api.Container,
) ([]*api.ContainerUpdate, error) {
	r.add(pod, "StopContainer", describeContainer(container)) // no name: the kubelet stops containers in any order
	return nil, nil
}

// RemoveContainer records the call.
func (r *Recorder) RemoveContainer(_ context.Context, pod *api.PodSandbox, container *api.Container) error {
	r.add(pod, "RemoveContainer", describeContainer(container))
	return nil
}
