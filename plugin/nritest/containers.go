package nritest

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// CreateContainer creates a container with CDI devices and returns the changes that plugins have requested. It resolves
// the devices before it calls the plugins.
func (r *Runtime) CreateContainer(
	ctx context.Context, sandbox, name string, devices ...string,
) (*api.ContainerAdjustment, error) {
	box, err := r.find(sandbox)
	if err != nil {
		return nil, err
	}
	spec := &specs.Spec{Process: &specs.Process{Env: []string{"PATH=/bin"}}}
	if err := r.inject(spec, devices); err != nil {
		return nil, err
	}
	container := &api.Container{Id: containerID(sandbox, name), PodSandboxId: sandbox, Name: name,
		Env: spec.Process.Env, Hooks: api.FromOCIHooks(spec.Hooks)}
	for _, device := range devices {
		container.CDIDevices = append(container.CDIDevices, &api.CDIDevice{Name: device})
	}
	defer r.hold()()
	var adjustment *api.ContainerAdjustment
	err = r.call(func(plugins *adaptation.Adaptation) error {
		response, err := plugins.CreateContainer(ctx, &adaptation.CreateContainerRequest{Pod: r.describe(box),
			Container: r.Report(container)})
		adjustment = response.GetAdjust()
		return err
	})
	if err != nil {
		return nil, err
	}
	container.State = api.ContainerState_CONTAINER_CREATED
	r.SetContainer(container)
	return adjustment, r.call(func(plugins *adaptation.Adaptation) error {
		return plugins.PostCreateContainer(ctx, &adaptation.PostCreateContainerRequest{Pod: r.describe(box),
			Container: r.Report(container)})
	})
}

// inject applies the edits of CDI devices to a specification.
func (r *Runtime) inject(spec *specs.Spec, devices []string) error {
	cache, err := cdi.NewCache(cdi.WithAutoRefresh(false), cdi.WithSpecDirs(r.cdiDir))
	if err != nil {
		return err
	}
	if _, err := cache.InjectDevices(spec, devices...); err != nil {
		return fmt.Errorf("CDI device injection failed: %w", err)
	}
	return nil
}

// SetContainer adds or replaces a container without calling plugins.
func (r *Runtime) SetContainer(container *api.Container) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.containers[container.GetId()] = container
}

// StartContainer starts a created container.
func (r *Runtime) StartContainer(ctx context.Context, sandbox, name string) error {
	box, err := r.find(sandbox)
	if err != nil {
		return err
	}
	id := containerID(sandbox, name)
	defer r.hold()()
	if err := r.call(func(plugins *adaptation.Adaptation) error {
		return plugins.StartContainer(ctx, &adaptation.StartContainerRequest{Pod: r.describe(box),
			Container: r.container(id)})
	}); err != nil {
		return err
	}
	r.setState(id, api.ContainerState_CONTAINER_RUNNING)
	return r.call(func(plugins *adaptation.Adaptation) error {
		return plugins.PostStartContainer(ctx, &adaptation.PostStartContainerRequest{Pod: r.describe(box),
			Container: r.container(id)})
	})
}

// stopContainer stops a container, unless it is already stopped.
func (r *Runtime) stopContainer(ctx context.Context, box *sandbox, id string) error {
	if r.container(id).GetState() == api.ContainerState_CONTAINER_STOPPED {
		return nil
	}
	err := r.call(func(plugins *adaptation.Adaptation) error {
		_, err := plugins.StopContainer(ctx, &adaptation.StopContainerRequest{Pod: r.describe(box),
			Container: r.container(id)})
		return err
	})
	r.setState(id, api.ContainerState_CONTAINER_STOPPED)
	return err
}

// removeContainer removes a stopped container.
func (r *Runtime) removeContainer(ctx context.Context, box *sandbox, id string) error {
	return r.call(func(plugins *adaptation.Adaptation) error {
		return plugins.RemoveContainer(ctx, &adaptation.RemoveContainerRequest{Pod: r.describe(box),
			Container: r.container(id)})
	})
}

func containerID(sandbox, name string) string { return sandbox + "/" + name }

// container returns a container as it is reported to plugins.
func (r *Runtime) container(id string) *api.Container {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Report(r.containers[id])
}

func (r *Runtime) setState(id string, state api.ContainerState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.containers[id].State = state
}

// containersOf returns the sorted IDs of the containers in a sandbox.
func (r *Runtime) containersOf(sandbox string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []string
	for id, container := range r.containers {
		if container.GetPodSandboxId() == sandbox {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
