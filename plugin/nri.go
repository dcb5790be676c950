package plugin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

const (
	// nriIndex orders NRI plugins: late, so that a pod that another plugin refuses never reaches the hardware.
	nriIndex = "90"
	nriName  = "dra-network"
	// nriConnectLimit is how long a connection may take.
	nriConnectLimit = 15 * time.Second
	nriRetry        = 200 * time.Millisecond
	nriRetryMax     = 2 * time.Second
	// configSource is the annotation by which kubelet says where a pod comes from.
	configSource = "kubernetes.io/config.source"
)

// nriPlugin is what the container runtime calls. Its handlers run under a lock of the whole node: a pod without claims
// costs one map lookup.
type nriPlugin struct {
	socket    string
	cluster   *cluster
	claims    *claims
	sandboxes *sandboxes
	clock     clock.Clock
	// work ends when the driver stops.
	work context.Context

	mu          sync.Mutex
	isConnected bool
	onConnect   func()
}

// run keeps connected until ctx ends. It returns an error only when the stub hangs, which only a new process cures.
func (n *nriPlugin) run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	for delay := nriRetry; ctx.Err() == nil; delay = min(2*delay, nriRetryMax) {
		start := n.clock.Now()
		err := n.session(ctx)
		n.setConnected(false)
		if errors.Is(err, errHung) {
			return fmt.Errorf("cannot connect to the container runtime at %s: %w", n.socket, err)
		}
		if ctx.Err() != nil {
			break
		}
		if n.clock.Since(start) > time.Minute {
			delay = nriRetry
		}
		logger.Info("Not connected to the container runtime (NRI); pods with claims wait", "socket", n.socket, "err", err, "again", delay)
		select {
		case <-ctx.Done():
		case <-n.clock.After(delay):
		}
	}
	return nil //nolint:nilerr // the driver stops, and with it the session
}

// errHung is cured only by a new process: a stub whose runtime dies between its registration and its configuration never
// returns.
var errHung = errors.New("the connection hangs; starting over")

// session is one connection, from start to end.
func (n *nriPlugin) session(ctx context.Context) error {
	ended := make(chan error, 1)
	configured := make(chan struct{})
	connection := &nriConnection{nriPlugin: n, configured: sync.OnceFunc(func() { close(configured) })}
	client, err := stub.New(connection,
		stub.WithPluginName(nriName), stub.WithPluginIdx(nriIndex), stub.WithSocketPath(n.socket), stub.WithOnClose(func() {}),
		stub.WithFailurePolicy(&api.FailurePolicy{FailRequest: true, KeepConnected: true}))
	if err != nil {
		return err
	}
	go func() { ended <- client.Run(ctx) }()
	limit := n.clock.NewTimer(nriConnectLimit)
	defer limit.Stop()
	select {
	case err := <-ended:
		return err
	case <-configured:
	case <-limit.C():
		return errHung
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

func (n *nriPlugin) setConnected(connected bool) {
	n.mu.Lock()
	changed := n.isConnected != connected
	n.isConnected = connected
	n.mu.Unlock()
	if changed && connected {
		n.onConnect()
	}
}

// connected says whether the runtime tells us about new pods.
func (n *nriPlugin) connected() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.isConnected
}

// nriConnection is what the stub calls during one connection.
type nriConnection struct {
	*nriPlugin
	configured func()
}

// Configure subscribes to no more events than are needed: a failure policy covers them all.
func (c *nriConnection) Configure(ctx context.Context, _, runtime, version string) (api.EventMask, error) {
	klog.FromContext(ctx).V(2).Info("Connected to the container runtime (NRI)", "runtime", runtime, "version", version)
	return api.ParseEventMask("RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "CreateContainer")
}

// Synchronize is evidence of what is there, never of what is not. Pods that started while the driver was away are
// attached now, if no container of theirs has been created.
func (c *nriConnection) Synchronize(_ context.Context, pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	busy := map[string]bool{}
	for _, container := range containers {
		busy[container.GetPodSandboxId()] = true
	}
	c.configured()
	c.setConnected(true)
	c.sandboxes.wait.Go(func() { c.attachMissed(pods, busy) })
	return nil, nil
}

// attachMissed looks at every pod on its own: one may have to wait until what a crash left of it is undone.
func (n *nriPlugin) attachMissed(pods []*api.PodSandbox, busy map[string]bool) {
	for _, pod := range pods {
		if networkNamespace(pod) == "" {
			continue
		}
		if records, err := n.claimsOf(pod); err == nil && len(records) > 0 {
			n.sandboxes.wait.Go(func() { n.attachLate(pod, busy[pod.GetId()]) })
		}
	}
}

func (n *nriPlugin) attachLate(pod *api.PodSandbox, busy bool) {
	logger := klog.FromContext(n.work).WithValues("pod", podOf(pod).String(), "sandbox", pod.GetId())
	n.sandboxes.settled(n.work, pod.GetId())
	records, err := n.claimsOf(pod)
	if known, _, _ := n.sandboxes.state(pod.GetId()); known || err != nil || len(records) == 0 {
		return
	}
	if busy {
		logger.Error(nil, "Containers of a pod with claims were created while the driver was away; the pod is left as it is")
		return
	}
	logger.Info("Attaching a pod that started while the driver was away")
	if err := n.sandboxes.attachLater(pod.GetId(), podOf(pod), networkNamespace(pod), records); err != nil {
		logger.Error(err, "Cannot attach")
	}
}

// RunPodSandbox attaches the pod's claims. An error makes the runtime end the sandbox; kubelet then makes a new one.
func (n *nriPlugin) RunPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	records, err := n.claimsOf(pod)
	if err != nil || len(records) == 0 {
		return err
	}
	netns := networkNamespace(pod)
	if netns == "" {
		return fmt.Errorf("pod %s uses the host's network and can't be given the interfaces of claim %s: remove hostNetwork or the claim", podOf(pod), records[0].Claim)
	}
	if err := n.sandboxes.attach(ctx, pod.GetId(), podOf(pod), netns, records); err != nil {
		return fmt.Errorf("cannot attach pod %s: %w", podOf(pod), err)
	}
	return nil
}

// StopPodSandbox detaches. It is not told about pods that are older than the runtime's process.
func (n *nriPlugin) StopPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	n.sandboxes.stopSandbox(ctx, pod.GetId())
	return nil
}

// RemovePodSandbox comes after, instead of, or before StopPodSandbox.
func (n *nriPlugin) RemovePodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	n.sandboxes.stopSandbox(ctx, pod.GetId())
	return nil
}

// CreateContainer holds containers that the gate does not: those that don't name the claim, and those of a later pod of a
// shared claim.
func (n *nriPlugin) CreateContainer(_ context.Context, pod *api.PodSandbox, container *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	known, ready, failure := n.sandboxes.state(pod.GetId())
	switch {
	case ready:
		return nil, nil, nil
	case known && failure != nil:
		return nil, nil, fmt.Errorf("container %s waits for the interfaces of pod %s: %w", container.GetName(), podOf(pod), failure)
	case known:
		return nil, nil, fmt.Errorf("container %s waits for the interfaces of pod %s: they are being attached", container.GetName(), podOf(pod))
	}
	records, err := n.claimsOf(pod)
	if err != nil {
		return nil, nil, err
	}
	if len(records) > 0 {
		return nil, nil, fmt.Errorf("container %s waits for the interfaces of pod %s: claim %s is not attached", container.GetName(), podOf(pod), records[0].Claim)
	}
	return nil, nil, nil
}

// claimsOf returns the prepared claims of a pod, in the order of its resourceClaims, without asking the API server. A pod
// of which that can't be said yet is an error: the runtime tries again.
func (n *nriPlugin) claimsOf(pod *api.PodSandbox) ([]ClaimRecord, error) {
	if source := pod.GetAnnotations()[configSource]; source != "" && source != "api" {
		return nil, nil // a static pod has no claims
	}
	records := n.claims.ofPod(pod.GetUid())
	if !n.claims.shareable(pod.GetNamespace()) {
		return records, nil
	}
	// Claims that a user made may have got this pod after they were prepared.
	known := n.cluster.cachedPod(pod.GetNamespace(), pod.GetName(), pod.GetUid())
	if known == nil {
		if len(records) > 0 {
			return nil, fmt.Errorf("the claims of pod %s are not known yet: try again", podOf(pod))
		}
		return nil, fmt.Errorf("pod %s is not known yet, and its namespace has claims that it may share: try again", podOf(pod))
	}
	return n.claimsByName(known), nil
}

func (n *nriPlugin) claimsByName(pod *corev1.Pod) []ClaimRecord {
	var records []ClaimRecord
	for i := range pod.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil || name == nil {
			continue
		}
		if record, found := n.claims.named(pod.Namespace, *name); found {
			records = append(records, record)
		}
	}
	return records
}

func podOf(pod *api.PodSandbox) cnichain.Pod {
	return cnichain.Pod{Namespace: pod.GetNamespace(), Name: pod.GetName(), UID: pod.GetUid()}
}

// networkNamespace is empty for a pod on the host's network, and after its namespace is gone.
func networkNamespace(pod *api.PodSandbox) string {
	for _, namespace := range pod.GetLinux().GetNamespaces() {
		if namespace.GetType() == "network" {
			return namespace.GetPath()
		}
	}
	return ""
}
