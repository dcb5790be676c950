package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/attach"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/internal/telemetry"
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
	claims    *claims.Store
	sandboxes *attach.Sandboxes
	clock     clock.Clock
	// namespaces finds those of sandboxes.
	namespaces namespaces
	// work ends when the driver stops.
	work    context.Context
	metrics *metrics

	// observer tells a pod and its claims why it is not attached.
	observer attach.Observer

	mu          sync.Mutex
	isConnected bool
	timeout     time.Duration // of a request, as the runtime has said last
	// decided are sandboxes that had containers when the connection began, none of which names a claim. Whether they
	// are the driver's business was decided before, perhaps by one that could ask the API server.
	decided sets.Set[string]
	// busy are sandboxes in which containers ran that name a claim when the connection began.
	busy map[string]bool

	unclaimed *unclaimedSandboxes
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
		logger.Info("Lost the connection to the container runtime (NRI); pods with claims wait", "socket", n.socket,
			"err", err, "again", delay)
		select {
		case <-ctx.Done():
		case <-n.clock.After(delay):
		}
	}
	return nil //nolint:nilerr // the driver stops, and with it the session
}

// errHung is cured only by a new process: a stub whose runtime dies between its registration and its configuration
// never returns.
var errHung = errors.New("the connection hangs; starting over")

// session is one connection, from start to end.
func (n *nriPlugin) session(ctx context.Context) error {
	ended := make(chan error, 1)
	configured := make(chan struct{})
	connection := &nriConnection{nriPlugin: n, configured: sync.OnceFunc(func() { close(configured) })}
	defer connection.end()
	client, err := stub.New(connection,
		stub.WithPluginName(nriName), stub.WithPluginIdx(nriIndex), stub.WithSocketPath(n.socket),
		stub.WithOnClose(func() {}))
	// No failure policy: with one, a driver that hangs would keep every pod of the node from starting. Containers that
	// name a claim are held by its gate.
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
		n.setTimeout(client.RequestTimeout())
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

// setConnected sets whether the runtime tells of new pods. While it does not, gates are closed.
func (n *nriPlugin) setConnected(connected bool) {
	n.mu.Lock()
	n.isConnected = connected
	n.mu.Unlock()
	if connected {
		return
	}
	if err := n.sandboxes.Disconnect(); err != nil {
		klog.FromContext(n.work).Error(err, "Cannot close all gates; retrying in the next sweep")
	}
}

func (n *nriPlugin) setTimeout(timeout time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.timeout = timeout
}

func (n *nriPlugin) requestTimeout() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.timeout
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

	synchronizing sync.Mutex // held while what the connection says becomes true
	over          bool       // the connection has ended, and what it says counts no more
}

// end waits for what is being synchronized; afterwards nothing is.
func (c *nriConnection) end() {
	c.synchronizing.Lock()
	defer c.synchronizing.Unlock()
	c.over = true
}

// Configure subscribes to no more events than are needed: a failure policy covers them all.
func (c *nriConnection) Configure(ctx context.Context, _, runtime, version string) (api.EventMask, error) {
	c.configured()
	c.metrics.connections.Inc()
	klog.FromContext(ctx).V(2).Info("Connected to the container runtime (NRI)", "runtime", runtime, "version", version)
	return api.ParseEventMask("RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "CreateContainer")
}

// Synchronize is evidence of what is there, never of what is not. What the driver remembers of sandboxes is checked
// against it before containers may start for that. Pods that started while the driver was away are attached now, if
// none of their containers runs that names a claim.
func (c *nriConnection) Synchronize(
	_ context.Context, pods []*api.PodSandbox, containers []*api.Container,
) ([]*api.ContainerUpdate, error) {
	c.synchronizing.Lock()
	defer c.synchronizing.Unlock()
	if c.over {
		return nil, errors.New("the connection has ended")
	}
	named, unnamed := map[string]bool{}, sets.New[string]()
	for _, container := range containers {
		switch {
		case !namesClaim(container):
			unnamed.Insert(container.GetPodSandboxId())
		case isRunning(container): // one that does not run yet is held by its gate, and by the hook
			named[container.GetPodSandboxId()] = true
		}
	}
	listed := make(map[string]string, len(pods))
	for _, pod := range pods {
		listed[pod.GetId()], _ = c.namespaces.pathOf(pod) // the error is told by attachMissed
	}
	c.mu.Lock()
	c.decided, c.busy = unnamed, named
	c.mu.Unlock()
	c.unclaimed.replace(slices.DeleteFunc(slices.Clone(pods), func(pod *api.PodSandbox) bool {
		return isStatic(pod) || c.sandboxes.Knows(pod.GetId())
	}))
	err := c.sandboxes.Confirm(listed)
	c.setConnected(true)
	c.attachAfterResync(pods, named)
	if err != nil {
		klog.FromContext(c.work).Error(err, "Cannot update all gates; retrying in the next sweep")
	}
	return nil, nil
}

// namesClaim says whether a container names a claim of the driver: kubelet gives it the CDI device of the claim's gate.
func namesClaim(container *api.Container) bool { return len(partsNamed(container)) > 0 }

// partsNamed are the parts of claims that a container names.
func partsNamed(container *api.Container) []attach.Part {
	var parts []attach.Part
	for _, device := range container.GetCDIDevices() {
		if part, ours := attach.PartOfDevice(device.GetName()); ours {
			parts = append(parts, part)
		}
	}
	return parts
}

func isRunning(container *api.Container) bool {
	state := container.GetState()
	return state == api.ContainerState_CONTAINER_RUNNING || state == api.ContainerState_CONTAINER_PAUSED
}

// attachAfterResync looks at every pod on its own: one may have to wait until what a crash left of it is undone, or
// until the API server says whose it is. busy are sandboxes in which containers run that name a claim.
func (n *nriPlugin) attachAfterResync(pods []*api.PodSandbox, busy map[string]bool) {
	listed := map[string]bool{}
	for _, pod := range pods {
		if isStatic(pod) {
			continue
		}
		netns, err := n.namespaces.pathOf(pod)
		if err != nil {
			n.reportUnattachable(pod, err)
		}
		if netns != "" && len(pod.GetLinux().GetNamespaces()) == 0 {
			klog.FromContext(n.work).Info("Runtime reports no network namespace for the sandbox; using that of its "+
				"process", "pod", podOf(pod).String(), "sandbox", pod.GetId(), "netns", netns)
		}
		if netns != "" && n.sandboxes.NamespaceExists(netns) { // else it has ended
			listed[pod.GetId()] = true
		}
	}
	n.sandboxes.ExpectUnsynced(listed)
	for _, pod := range pods {
		if listed[pod.GetId()] {
			n.sandboxes.GoTracked(func() { n.attachLate(pod, busy[pod.GetId()]) })
		}
	}
}

// reportUnattachable tells a pod whose sandbox nobody can attach anything to, if it has claims.
func (n *nriPlugin) reportUnattachable(pod *api.PodSandbox, err error) {
	if records := n.claims.OfPod(pod.GetUid()); len(records) > 0 {
		klog.FromContext(n.work).Error(err, "Cannot attach a pod that started while the driver was away", "pod",
			podOf(pod).String(), "sandbox", pod.GetId())
		n.observer.AttachFailed(podOf(pod), records, err, 0)
	}
}

// attachLate tries until the pod is attached, ends, or turns out not to be ours.
func (n *nriPlugin) attachLate(pod *api.PodSandbox, busy bool) {
	logger := klog.FromContext(n.work).WithValues("pod", podOf(pod).String(), "sandbox", pod.GetId())
	attempts := 0
	for delay := nriRetry; n.sandboxes.IsUnsynced(pod.GetId()); delay = min(2*delay, attach.Retry) {
		if n.ready(pod) { // also while nobody can say what its claims are, because the API server has not answered yet
			return
		}
		records, err := n.claimsOf(pod)
		switch {
		case err == nil && len(records) == 0:
			return
		case err == nil && busy:
			err = fmt.Errorf("cannot attach claim %s: containers of pod %s that name it run already, and the driver "+
				"has no record of what they were given; delete the pod", records[0].Claim, podOf(pod))
			logger.Error(err, "Cannot attach a running pod; it is left unchanged")
			n.observer.AttachFailed(podOf(pod), records, err, 0)
			return
		case err == nil:
			if err = n.attachNow(pod, records); err == nil {
				logger.Info("Attaching a pod that started while the driver was away")
				return
			}
		}
		if attempts++; attempts == toldAttempt && len(records) > 0 {
			n.observer.AttachFailed(podOf(pod), records,
				fmt.Errorf("cannot attach a pod that started while the driver was away, yet: %w", err), delay)
		}
		logger.V(2).Info("Cannot attach a pod that started while the driver was away; trying again", "err", err,
			"again", delay)
		select {
		case <-n.work.Done():
			return
		case <-n.clock.After(delay):
		}
	}
}

// toldAttempt is which failing attempt a pod is told of: the first ones fail while something earlier is being undone.
const toldAttempt = 6

// attachNow looks again which namespace the sandbox has: the process by which it was found may have ended.
func (n *nriPlugin) attachNow(pod *api.PodSandbox, records []claims.Record) error {
	netns, err := n.namespaces.pathOf(pod)
	if err == nil && netns == "" {
		err = fmt.Errorf("sandbox %s has no network namespace any more", pod.GetId())
	}
	if err != nil {
		return err
	}
	return n.sandboxes.AttachAfterResync(pod.GetId(), podOf(pod), netns, records)
}

func (n *nriPlugin) ready(pod *api.PodSandbox) bool {
	_, ready, _ := n.sandboxes.State(pod.GetId())
	return ready
}

// RunPodSandbox attaches the pod's claims. An error makes the runtime end the sandbox; kubelet then makes a new one.
func (n *nriPlugin) RunPodSandbox(ctx context.Context, pod *api.PodSandbox) (err error) {
	start := n.clock.Now()
	defer func() {
		telemetry.Observe(n.metrics.hooks, n.clock.Since(start), err, "RunPodSandbox")
		n.logCall("RunPodSandbox", pod, n.clock.Since(start), err)
		err = telemetry.WireError(err)
	}()
	records, err := n.claimsOf(pod)
	if err == nil && len(records) == 0 && !isStatic(pod) {
		n.unclaimed.add(pod)
	}
	if err != nil || len(records) == 0 {
		return err
	}
	netns, err := n.namespaces.pathOf(pod)
	if err != nil {
		return err
	}
	if netns == "" {
		return fmt.Errorf("pod %s uses the host's network and can't be given the interfaces of claim %s: remove "+
			"hostNetwork or the claim", podOf(pod), records[0].Claim)
	}
	if err := n.sandboxes.Attach(ctx, pod.GetId(), podOf(pod), netns, records); err != nil {
		return fmt.Errorf("cannot attach pod %s: %w", podOf(pod), err)
	}
	return nil
}

// StopPodSandbox detaches, and waits a little. It is not told about pods that are older than the runtime's process.
func (n *nriPlugin) StopPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	start := n.clock.Now()
	defer func() {
		telemetry.Observe(n.metrics.hooks, n.clock.Since(start), nil, "StopPodSandbox")
		n.logCall("StopPodSandbox", pod, n.clock.Since(start), nil)
	}()
	n.unclaimed.remove(pod.GetId())
	budget := n.clock.NewTimer(n.sandboxes.Budget(ctx))
	defer budget.Stop()
	select {
	case <-n.sandboxes.StopSandbox(pod.GetId()):
	case <-ctx.Done():
	case <-budget.C():
	}
	return nil
}

// RemovePodSandbox comes after, instead of, or before StopPodSandbox.
func (n *nriPlugin) RemovePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	n.unclaimed.remove(pod.GetId())
	n.sandboxes.StopSandbox(pod.GetId())
	return nil
}

// CreateContainer holds containers that the gate does not: those that don't name the claim, and those of a later pod of
// a shared claim. Those that name claims get the limits of the claims' topologies.
func (n *nriPlugin) CreateContainer(
	_ context.Context, pod *api.PodSandbox, container *api.Container,
) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	err := n.mayStart(pod, container)
	var adjustment *api.ContainerAdjustment
	if err == nil {
		adjustment, err = n.adjust(pod, container)
	}
	if err != nil {
		klog.FromContext(n.work).V(telemetry.LevelDecisions).Info("Held a container", "pod", podOf(pod).String(),
			"container",
			container.GetName(), "reason", err.Error())
	}
	return adjustment, nil, telemetry.WireError(err)
}

// memlock is the OCI runtime specification's name of the limit of locked memory (getrlimit(2)).
const memlock = "RLIMIT_MEMLOCK"

// adjust gives a container the limits of the claims that it names; nil if they set none. The runtime merges them into
// the container's specification.
func (n *nriPlugin) adjust(pod *api.PodSandbox, container *api.Container) (*api.ContainerAdjustment, error) {
	named := partsNamed(container)
	if len(named) == 0 {
		return nil, nil
	}
	limits, err := n.sandboxes.ContainerLimits(pod.GetId(), named)
	if err != nil {
		return nil, fmt.Errorf("cannot create container %s of pod %s: %w", container.GetName(), podOf(pod), err)
	}
	var adjustment *api.ContainerAdjustment
	if limits.LockedMemory > 0 {
		adjustment = &api.ContainerAdjustment{}
		adjustment.AddRlimit(memlock, limits.LockedMemory, limits.LockedMemory)
	}
	if limits.RDMA != "" {
		if adjustment == nil {
			adjustment = &api.ContainerAdjustment{}
		}
		adjustment.AddLinuxUnified("rdma.max", limits.RDMA)
	}
	return adjustment, nil
}

// logCall logs what the runtime was answered.
func (n *nriPlugin) logCall(event string, pod *api.PodSandbox, duration time.Duration, err error) {
	klog.FromContext(n.work).V(telemetry.LevelCalls).Info("Answered the container runtime", "event", event, "pod",
		podOf(pod).String(),
		"sandbox", pod.GetId(), "duration", duration.Round(time.Microsecond), "err", err)
}

// mayStart says why a container may not start yet.
func (n *nriPlugin) mayStart(pod *api.PodSandbox, container *api.Container) error {
	known, ready, failure := n.sandboxes.State(pod.GetId())
	named := partsNamed(container)
	switch {
	case ready:
		return nil
	case known && failure != nil:
		return fmt.Errorf("container %s waits for the interfaces of pod %s: %w", container.GetName(),
			podOf(pod), failure)
	case known:
		return fmt.Errorf("container %s waits for the interfaces of pod %s: they are being attached or undone",
			container.GetName(), podOf(pod))
	}
	if len(named) == 0 && n.wasDecided(pod.GetId()) {
		return nil
	}
	if len(named) > 0 && n.isUnrecorded(pod, named) {
		return nil
	}
	records, err := n.claimsOf(pod)
	if err != nil {
		return err
	}
	if len(records) > 0 {
		return fmt.Errorf("container %s waits for the interfaces of pod %s: claim %s is not attached",
			container.GetName(), podOf(pod), records[0].Claim)
	}
	if len(named) > 0 { // another pod of the claim has opened the gate
		return fmt.Errorf("cannot create container %s: it names a claim of which nothing is attached to pod %s; the "+
			"driver attaches it, and kubelet tries again", container.GetName(), podOf(pod))
	}
	return nil
}

// isBusy says whether containers that name a claim ran in a sandbox when the connection began.
func (n *nriPlugin) isBusy(sandbox string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.busy[sandbox]
}

// wasDecided says whether a sandbox had containers before the driver was connected.
func (n *nriPlugin) wasDecided(sandbox string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.decided.Has(sandbox)
}

// isUnrecorded says whether all claims that a container names are attached to its pod, of which the journal has lost
// the record.
func (n *nriPlugin) isUnrecorded(pod *api.PodSandbox, named []attach.Part) bool {
	netns, err := n.namespaces.pathOf(pod)
	if err != nil || netns == "" {
		return false
	}
	return !slices.ContainsFunc(named,
		func(part attach.Part) bool { return !n.sandboxes.AdmitsUnrecorded(part.ClaimUID, netns) })
}

// claimsOf returns the prepared claims of a pod that are to be attached, in the order of its resourceClaims and with
// that of its extended resources last, without asking the API server. A pod of which that can't be said yet is an
// error: the runtime tries again.
func (n *nriPlugin) claimsOf(pod *api.PodSandbox) ([]claims.Record, error) {
	if isStatic(pod) {
		return nil, nil
	}
	records := attachable(n.claims.OfPod(pod.GetUid()))
	if !n.claims.HasShareable(pod.GetNamespace()) {
		return records, nil
	}
	// Claims that a user made may have got this pod after they were prepared.
	known := n.cluster.cachedPod(pod.GetNamespace(), pod.GetName(), pod.GetUid())
	if known == nil {
		if len(records) > 0 {
			return nil, fmt.Errorf("the claims of pod %s are not known yet: try again", podOf(pod))
		}
		return nil, fmt.Errorf("pod %s is not known yet, and its namespace has claims that it may share: try again",
			podOf(pod))
	}
	named, err := n.claimsByName(known)
	if err != nil {
		return nil, err
	}
	for _, record := range records { // the cache may be older than what kubelet has had prepared
		isNamed := func(other claims.Record) bool { return other.Claim.UID == record.Claim.UID }
		if !slices.ContainsFunc(named, isNamed) {
			named = append(named, record)
		}
	}
	return named, nil
}

// attachable are the claims with something to attach: devices for administrative access are not given to pods.
func attachable(records []claims.Record) []claims.Record {
	return slices.DeleteFunc(records, func(record claims.Record) bool { return len(record.Plans) == 0 })
}

// claimsByName returns the prepared claims that a pod names, or that the scheduler has made for its extended resources.
func (n *nriPlugin) claimsByName(pod *corev1.Pod) ([]claims.Record, error) {
	var records []claims.Record
	add := func(name string) {
		if record, found := n.claims.Named(pod.Namespace, name); found {
			records = append(records, record)
		}
	}
	for i := range pod.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil, fmt.Errorf("the claims of pod %s/%s are not known yet: %w", pod.Namespace, pod.Name, err)
		}
		if name != nil { // else no claim is needed
			add(*name)
		}
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil {
		add(extended.ResourceClaimName)
	}
	return attachable(records), nil
}

// isStatic says whether kubelet has the pod from elsewhere than the API server. Such a pod has no claims.
func isStatic(pod *api.PodSandbox) bool {
	source := pod.GetAnnotations()[configSource]
	return source != "" && source != "api"
}

func podOf(pod *api.PodSandbox) executor.Pod {
	return executor.Pod{Namespace: pod.GetNamespace(), Name: pod.GetName(), UID: pod.GetUid()}
}
