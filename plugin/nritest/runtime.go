package nritest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"google.golang.org/protobuf/proto"
)

// Namespaces creates and removes the network namespaces of sandboxes.
type Namespaces interface {
	AddNamespace(path string)
	EndNamespace(path string)
	Exists(path string) bool
}

// Pod describes a pod and its sandbox.
type Pod struct {
	// ID is the ID of the sandbox. UID, Name and Namespace identify the pod.
	ID, UID, Name, Namespace string
	HostNetwork              bool
}

// Runtime is a simulated container runtime. Its methods correspond to the CRI calls of a kubelet, without the parts
// that are irrelevant to NRI plugins. As with a real runtime, sandboxes and containers survive [Runtime.Stop]. A
// Runtime is safe for concurrent use.
type Runtime struct {
	Profile
	namespaces Namespaces
	cdiDir     string
	// BeforeListed, if not nil, is called after the plugins have accepted a new sandbox and before the runtime lists
	// the sandbox.
	BeforeListed func()
	// HostNamespace, if not empty, replaces the network namespace path of sandboxes in the host's network namespace.
	HostNamespace string

	nri sync.Mutex // serializes calls to plugins, as in containerd and CRI-O
	// server is nil while the runtime is stopped. It is guarded by nri.
	server *server

	mu         sync.Mutex
	sandboxes  map[string]*sandbox
	containers map[string]*api.Container
}

type sandbox struct {
	Pod
	netns string
	// older is true if the sandbox was created by an earlier process of the runtime.
	older bool
	// ended is true once the sandbox no longer has a process.
	ended bool
}

// New creates a runtime without starting it. cdiDir is the directory for CDI specs.
func New(profile Profile, namespaces Namespaces, cdiDir string) *Runtime {
	return &Runtime{Profile: profile, namespaces: namespaces, cdiDir: cdiDir, sandboxes: map[string]*sandbox{},
		containers: map[string]*api.Container{}}
}

// Start simulates the start of the runtime's process, which listens on an NRI socket.
func (r *Runtime) Start(socket string) error {
	server, err := r.serve(socket)
	if err != nil {
		return err
	}
	r.nri.Lock()
	defer r.nri.Unlock()
	r.server = server
	return nil
}

// Stop simulates the termination of the runtime's process and closes its connections.
func (r *Runtime) Stop() {
	r.nri.Lock()
	server := r.server
	r.server = nil
	r.nri.Unlock()
	if server != nil {
		server.close()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, box := range r.sandboxes {
		box.older = true
	}
}

// call calls the plugins, unless the runtime is stopped.
func (r *Runtime) call(request func(*adaptation.Adaptation) error) error {
	r.nri.Lock()
	defer r.nri.Unlock()
	if r.server == nil {
		return nil
	}
	return request(r.server.plugins)
}

// hold prevents plugins from synchronizing until the returned function is called, if the profile requires this.
func (r *Runtime) hold() (release func()) {
	r.nri.Lock()
	server := r.server
	r.nri.Unlock() // a plugin that is synchronizing needs the lock
	if !r.HoldsPods || server == nil {
		return func() {}
	}
	return server.plugins.BlockPluginSync().Unblock
}

// Settle waits until all connected plugins are ready to receive calls.
func (r *Runtime) Settle() {
	r.nri.Lock()
	server := r.server
	r.nri.Unlock()
	if server != nil {
		server.plugins.BlockPluginSync().Unblock()
	}
}

// list passes the sandboxes and containers to a newly connected plugin.
func (r *Runtime) list(ctx context.Context, synchronize adaptation.SyncCB) error {
	r.nri.Lock()
	defer r.nri.Unlock()
	pods, containers := r.List()
	_, err := synchronize(ctx, pods, containers)
	return err
}

// List returns the sandboxes and containers, sorted by ID, as they are reported to plugins when they connect.
func (r *Runtime) List() (pods []*api.PodSandbox, containers []*api.Container) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(r.sandboxes)) {
		pods = append(pods, r.describe(r.sandboxes[id]))
	}
	for _, id := range slices.Sorted(maps.Keys(r.containers)) {
		if container := r.containers[id]; container.GetState() != api.ContainerState_CONTAINER_STOPPED {
			containers = append(containers, r.Report(container))
		}
	}
	return pods, containers
}

// Report returns a container as it is reported to plugins.
func (r *Runtime) Report(container *api.Container) *api.Container {
	reported := proto.Clone(container).(*api.Container)
	for _, remove := range r.Unreported {
		remove(reported)
	}
	return reported
}

// Sandbox returns a sandbox as it is reported to plugins. A sandbox that the runtime does not list has no network
// namespace.
func (r *Runtime) Sandbox(pod Pod) *api.PodSandbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	box := r.sandboxes[pod.ID]
	if box == nil {
		box = &sandbox{Pod: pod}
	}
	return r.describe(box)
}

func (r *Runtime) describe(box *sandbox) *api.PodSandbox {
	spaces := []*api.LinuxNamespace{{Type: "pid"}}
	if box.netns != "" && (r.StalePaths || r.namespaces.Exists(box.netns)) {
		spaces = append(spaces, &api.LinuxNamespace{Type: "network", Path: box.netns})
	}
	described := &api.PodSandbox{Id: box.ID, Uid: box.UID, Name: box.Name, Namespace: box.Namespace,
		Linux: &api.LinuxPodSandbox{Namespaces: spaces}}
	if r.PauseProcess && !box.ended {
		described.Pid = 1000
	}
	return described
}

// Add adds a sandbox to the runtime's list without calling plugins and returns the path to the sandbox's network
// namespace.
func (r *Runtime) Add(pod Pod) (netns string) {
	box := r.create(pod)
	r.AddAt(pod, box.netns)
	return box.netns
}

// AddAt adds a sandbox to the runtime's list with the given network namespace path, which does not have to exist.
func (r *Runtime) AddAt(pod Pod, netns string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sandboxes[pod.ID] = &sandbox{Pod: pod, netns: netns}
}

func (r *Runtime) create(pod Pod) *sandbox {
	switch {
	case pod.HostNetwork && !r.HostPaths:
		return &sandbox{Pod: pod}
	case pod.HostNetwork && r.HostNamespace != "":
		return &sandbox{Pod: pod, netns: r.HostNamespace}
	}
	netns := r.NamespacePrefix + pod.ID
	r.namespaces.AddNamespace(netns)
	return &sandbox{Pod: pod, netns: netns}
}

// Forget removes a sandbox, its containers and its network namespace without calling plugins.
func (r *Runtime) Forget(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	box := r.sandboxes[id]
	delete(r.sandboxes, id)
	maps.DeleteFunc(r.containers, func(_ string, c *api.Container) bool { return c.GetPodSandboxId() == id })
	if box != nil {
		r.end(box)
	}
}

// end removes the network namespace of a sandbox.
func (r *Runtime) end(box *sandbox) {
	if r.namespaces.Exists(box.netns) {
		r.namespaces.EndNamespace(box.netns)
	}
}

// Reboot removes all sandboxes and their containers.
func (r *Runtime) Reboot() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.sandboxes)
	clear(r.containers)
}

// RunPodSandbox creates a sandbox. The cluster network has been set up by the time plugins are called.
func (r *Runtime) RunPodSandbox(ctx context.Context, pod Pod) error {
	box := r.create(pod)
	defer r.hold()()
	err := r.call(func(plugins *adaptation.Adaptation) error {
		return plugins.RunPodSandbox(ctx, &adaptation.RunPodSandboxRequest{Pod: r.describe(box)})
	})
	if err != nil {
		if r.StopsRejected {
			_ = r.stopped(ctx, box) // the sandbox is removed anyway
			_ = r.removed(ctx, box)
		}
		r.end(box)
		return err
	}
	if r.BeforeListed != nil {
		r.BeforeListed()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sandboxes[pod.ID] = box
	return nil
}

func (r *Runtime) stopped(ctx context.Context, box *sandbox) error {
	return r.call(func(plugins *adaptation.Adaptation) error {
		return plugins.StopPodSandbox(ctx, &adaptation.StopPodSandboxRequest{Pod: r.describe(box)})
	})
}

func (r *Runtime) removed(ctx context.Context, box *sandbox) error {
	return r.call(func(plugins *adaptation.Adaptation) error {
		return plugins.RemovePodSandbox(ctx, &adaptation.RemovePodSandboxRequest{Pod: r.describe(box)})
	})
}

// find returns a sandbox, or an error if it does not exist.
func (r *Runtime) find(id string) (*sandbox, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	box := r.sandboxes[id]
	if box == nil {
		return nil, fmt.Errorf("sandbox %s does not exist", id)
	}
	return box, nil
}

// StopPodSandbox stops the containers of a sandbox and removes its network namespace.
func (r *Runtime) StopPodSandbox(ctx context.Context, id string) error {
	box, err := r.find(id)
	if err != nil {
		return err
	}
	defer r.hold()()
	for _, container := range r.containersOf(id) {
		if err := r.stopContainer(ctx, box, container); err != nil {
			return err
		}
	}
	r.mu.Lock()
	box.ended = true
	r.mu.Unlock()
	if r.NamespaceEndsFirst {
		r.end(box)
	}
	if !box.older || r.StopsOlderPods {
		err = r.stopped(ctx, box)
	}
	r.end(box)
	return err
}

// RemovePodSandbox removes a stopped sandbox and its containers.
func (r *Runtime) RemovePodSandbox(ctx context.Context, id string) error {
	box, err := r.find(id)
	if err != nil {
		return err
	}
	defer r.hold()()
	for _, container := range r.containersOf(id) {
		if err := r.removeContainer(ctx, box, container); err != nil {
			return err
		}
	}
	if !box.older || r.StopsOlderPods {
		err = r.removed(ctx, box)
	}
	r.Forget(id)
	return err
}
