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
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

const (
	// nriIndex determines the order of NRI plugins. The driver runs late, so that a pod that is rejected by another
	// plugin never reaches the hardware.
	nriIndex = "90"
	nriName  = "dra-network"
	// nriConnectLimit is the maximum time for establishing a connection.
	nriConnectLimit = 15 * time.Second
	nriRetry        = 200 * time.Millisecond
	nriRetryMax     = 2 * time.Second
)

// run maintains the connection to the runtime until ctx is done. It returns an error only if the stub hangs;
// the only way to recover is a new process.
func (n *nriPlugin) run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	for delay := nriRetry; ctx.Err() == nil; delay = min(2*delay, nriRetryMax) {
		start := n.Clock.Now()
		err := n.session(ctx)
		n.setConnected(false)
		if errors.Is(err, errHung) {
			return fmt.Errorf("cannot connect to the container runtime at %s: %w", n.Socket, err)
		}
		if ctx.Err() != nil {
			break
		}
		if n.Clock.Since(start) > time.Minute {
			delay = nriRetry
		}
		logger.Info("Lost the connection to the container runtime (NRI); pods with claims wait", "socket", n.Socket,
			"err", err, "again", delay)
		select {
		case <-ctx.Done():
		case <-n.Clock.After(delay):
		}
	}
	return nil //nolint:nilerr // the session ended because the driver is shutting down
}

// errHung makes the driver exit, since a hung stub requires a new process: if the runtime dies between the registration
// and the configuration of a stub, the stub never returns.
var errHung = errors.New("the connection hangs; reconnecting")

func (n *nriPlugin) session(ctx context.Context) error {
	ended := make(chan error, 1)
	configured := make(chan struct{})
	connection := &nriConnection{nriPlugin: n, configured: sync.OnceFunc(func() { close(configured) })}
	defer connection.end()
	ctx, cancel := n.connectionOf(ctx)
	defer cancel()
	client, err := stub.New(connection,
		stub.WithPluginName(nriName), stub.WithPluginIdx(nriIndex), stub.WithSocketPath(n.Socket),
		stub.WithOnClose(func() {}))
	// Do not set a failure policy: with such a policy, a hanging driver would prevent every pod on the node from
	// starting. Containers that name a claim are held back by its gate.
	if err != nil {
		return err
	}
	// The channel is buffered, so that the goroutine can exit even without a receiver.
	go func() { ended <- client.Run(ctx) }()
	limit := n.Clock.NewTimer(nriConnectLimit)
	defer limit.Stop()
	select {
	case err := <-ended:
		return err
	case <-configured:
		n.runtime.setTimeout(client.RequestTimeout())
	case <-limit.C():
		return errHung
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		select { // a late event must not be handled after the list from the next connection
		case err := <-ended:
			return errors.Join(context.Cause(ctx), err)
		case <-n.Clock.After(nriRetryMax):
		}
		return context.Cause(ctx)
	}
}

// setConnected records whether the runtime reports new pods. While it does not report them, gates are closed.
func (n *nriPlugin) setConnected(connected bool) {
	n.runtime.setConnected(connected)
	if connected {
		return
	}
	if err := n.Sandboxes.Disconnect(); err != nil {
		klog.FromContext(n.Work).Error(err, "Cannot close all gates; retrying in the next sweep")
	}
}

// nriConnection implements the stub's handlers for a single connection.
type nriConnection struct {
	*nriPlugin
	configured func()

	synchronizing sync.Mutex // held while the runtime's lists are processed
	over          bool       // the connection has ended and its lists must be ignored
}

// end waits for a running Synchronize call and causes later calls to be rejected.
func (c *nriConnection) end() {
	c.synchronizing.Lock()
	defer c.synchronizing.Unlock()
	c.over = true
}

// Configure subscribes only to the necessary events, since a failure policy would apply to all of them.
func (c *nriConnection) Configure(ctx context.Context, _, runtime, version string) (api.EventMask, error) {
	c.configured()
	c.Metrics.connections.Inc()
	klog.FromContext(ctx).V(2).Info("Connected to the container runtime (NRI)", "runtime", runtime, "version", version)
	return api.ParseEventMask("RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "CreateContainer")
}

// Synchronize treats the runtime's lists as proof that the listed objects exist, but never as proof that other objects
// do not exist. It compares the recorded sandboxes with the lists before containers may start in those sandboxes. It
// attaches pods that started while the driver was down, unless one of their running containers names a claim.
//
// It first records the containers that already exist, since CreateContainer needs them. Then it confirms known
// sandboxes, which opens their gates. After that, the driver accepts calls from the kubelet again. Unknown sandboxes
// are attached last.
func (c *nriConnection) Synchronize(
	_ context.Context, pods []*api.PodSandbox, containers []*api.Container,
) ([]*api.ContainerUpdate, error) {
	c.synchronizing.Lock()
	defer c.synchronizing.Unlock()
	if c.over {
		return nil, errors.New("the connection has ended")
	}
	decided, busy := sandboxesOf(containers)
	listed := make(map[string]string, len(pods))
	for _, pod := range pods {
		listed[pod.GetId()], _ = c.Namespaces.pathOf(pod) // attachAfterResync reports the error
	}
	c.runtime.begin(decided, busy)
	c.reported.replace(slices.DeleteFunc(slices.Clone(pods), func(pod *api.PodSandbox) bool {
		netns := listed[pod.GetId()]
		return netns == "" || !c.Sandboxes.NamespaceExists(netns)
	}))
	c.unclaimed.Clear()
	for _, pod := range pods {
		if !isStatic(pod) && !c.Sandboxes.Knows(pod.GetId()) {
			c.unclaimed.Store(pod.GetId(), pod)
		}
	}
	c.checkListed(pods, containers)
	err := c.Sandboxes.Confirm(listed)
	c.setConnected(true)
	c.attachAfterResync(pods, busy)
	if err != nil {
		klog.FromContext(c.Work).Error(err, "Cannot update all gates; retrying in the next sweep")
	}
	return nil, nil
}

// sandboxesOf groups the sandboxes by whether their containers name claims; see runtimeView. A sandbox must be attached
// if at least one of its containers names a claim but no such container is running. In this case, the sandbox's other
// containers also wait for the attachment.
func sandboxesOf(containers []*api.Container) (decided sets.Set[string], busy map[string]bool) {
	decided, busy = sets.New[string](), map[string]bool{}
	waiting := sets.New[string]()
	for _, container := range containers {
		sandbox := container.GetPodSandboxId()
		switch {
		case !namesClaim(container):
			decided.Insert(sandbox)
		case isRunning(container):
			busy[sandbox] = true
		default: // its gate and the hook hold the container back
			waiting.Insert(sandbox)
		}
	}
	for sandbox := range waiting {
		if !busy[sandbox] {
			decided.Delete(sandbox)
		}
	}
	return decided, busy
}

// runtimeView is the driver's view of the container runtime: whether the runtime reports new pods, and the containers
// that existed at the start of the connection. It is safe for concurrent use.
type runtimeView struct {
	mu sync.Mutex
	runtimeState
}

type runtimeState struct {
	connected chan struct{} // closed when the connection ends; nil if there is no connection
	timeout   time.Duration // timeout for requests, as last reported by the runtime; 0 before the first connection
	// end closes the connection and records the reason. It is nil before the first connection. ended is the time when
	// the driver last called end.
	end   context.CancelCauseFunc
	ended time.Time
	// decided contains the sandboxes that had containers without a claim when the connection was established, except
	// sandboxes that must still be attached (see [sandboxesOf]). For these sandboxes, it was decided earlier whether
	// the driver must attach them, possibly by a driver process that could reach the API server.
	decided sets.Set[string]
	// busy contains the sandboxes that, when the connection was established, had running containers that name a claim.
	busy map[string]bool
	// missingFacts lists the facts that the driver needs but that the runtime does not report on this connection.
	missingFacts []string
}

func (v *runtimeView) now() runtimeState {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.runtimeState
}

// isConnected reports whether the runtime reports new pods to the driver.
func (v *runtimeView) isConnected() bool { return v.now().connected != nil }

// begin records the sandboxes that the runtime lists when a connection is established, as grouped by [sandboxesOf].
func (v *runtimeView) begin(decided sets.Set[string], busy map[string]bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.decided, v.busy, v.missingFacts = decided, busy, nil
}

func (v *runtimeView) setConnected(connected bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case connected && v.connected == nil:
		v.connected = make(chan struct{})
	case !connected && v.connected != nil:
		close(v.connected)
		v.connected = nil
	}
}

func (v *runtimeView) setTimeout(timeout time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.timeout = timeout
}

// If a runtime creates a sandbox while the driver is connecting, it may neither list nor report the sandbox. This
// happens with CRI-O 1.37, which does not hold back pods during Synchronize. The driver would never attach such a
// sandbox. However, the kubelet reports in the pod's status that the sandbox exists (condition
// PodReadyToStartContainers), so the driver compares the two reports.

const (
	// missedDelay is the interval at which the driver compares the two reports. Usually, the runtime's report arrives
	// first, since the kubelet waits for RunPodSandbox.
	missedDelay = 3 * time.Second
	// missedInterval limits how often the driver itself ends a connection, because all gates are closed while there is
	// no connection.
	missedInterval = time.Minute
)

// errMissedSandbox is the reason that is recorded when the driver ends a connection so that the runtime lists its
// sandboxes again.
var errMissedSandbox = errors.New("the runtime has not reported a sandbox that the kubelet has; requesting a new list")

// reportedSandboxes contains, for each pod, the latest sandbox that the runtime has listed or reported on the current
// connection. It is safe for concurrent use.
type reportedSandboxes struct {
	mu    sync.Mutex
	byPod map[string]reportedSandbox // by UID
}

type reportedSandbox struct {
	*api.PodSandbox
	stopped bool
}

// replace replaces all sandboxes with those in the list from a new connection.
func (r *reportedSandboxes) replace(pods []*api.PodSandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byPod = make(map[string]reportedSandbox, len(pods))
	for _, pod := range pods {
		r.byPod[pod.GetUid()] = reportedSandbox{PodSandbox: pod}
	}
}

func (r *reportedSandboxes) add(pod *api.PodSandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byPod == nil {
		r.byPod = map[string]reportedSandbox{}
	}
	r.byPod[pod.GetUid()] = reportedSandbox{PodSandbox: pod}
}

// stop marks a sandbox as stopped, unless the pod now has another sandbox.
func (r *reportedSandboxes) stop(pod *api.PodSandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byPod[pod.GetUid()].GetId() == pod.GetId() {
		r.byPod[pod.GetUid()] = reportedSandbox{PodSandbox: pod, stopped: true}
	}
}

// remove forgets a sandbox, unless the pod now has another sandbox.
func (r *reportedSandboxes) remove(pod *api.PodSandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byPod[pod.GetUid()].GetId() == pod.GetId() {
		delete(r.byPod, pod.GetUid())
	}
}

// sandbox returns a pod's sandbox. The embedded PodSandbox is nil if the runtime has not reported one.
func (r *reportedSandboxes) sandbox(podUID string) reportedSandbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byPod[podUID]
}

// onSandbox calls created when the kubelet reports that a pod's sandbox exists.
func (c *cluster) onSandbox(created func(executor.Pod)) error {
	changed := func(before, after any) {
		old, _ := before.(*corev1.Pod)
		pod, ok := after.(*corev1.Pod)
		if ok && hasSandbox(pod) && (old == nil || !hasSandbox(old)) {
			created(executor.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)})
		}
	}
	_, err := c.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(pod any) { changed(nil, pod) }, UpdateFunc: changed})
	return err
}

func hasSandbox(pod *corev1.Pod) bool { return len(sandboxCondition(pod)) > 0 }

// sandboxCondition returns the condition with which the kubelet reports that a pod's sandbox exists, or nil if there is
// none.
func sandboxCondition(pod *corev1.Pod) []corev1.PodCondition {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReadyToStartContainers && condition.Status == corev1.ConditionTrue {
			return []corev1.PodCondition{{Type: condition.Type, Status: condition.Status}}
		}
	}
	return nil
}

func (n *nriPlugin) expectSandbox(pod executor.Pod) {
	n.Sandboxes.GoTracked(func() { n.awaitSandbox(pod) })
}

// awaitSandbox waits until the runtime has reported the sandbox that the kubelet created for a pod. If the runtime does
// not report it, awaitSandbox requests a new list of sandboxes. If the new list does not contain the sandbox either,
// awaitSandbox reports the fault as an event on the pod.
//
// awaitSandbox also attaches a sandbox whose claims had not been prepared yet when the sandbox was reported. Usually,
// the sandbox's containers trigger this (see attachMissed), but a runtime that resolves CDI devices before it calls the
// driver rejects the containers first.
func (n *nriPlugin) awaitSandbox(pod executor.Pod) {
	begin, first := n.Clock.Now(), n.reported.sandbox(pod.UID)
	for {
		select {
		case <-n.Work.Done():
			return
		case <-n.Clock.After(missedDelay):
		}
		if !n.runtime.isConnected() {
			continue // the list of the next connection may contain the sandbox
		}
		records := n.unattached(pod)
		sandbox := n.reported.sandbox(pod.UID)
		switch {
		case len(records) == 0:
			return
		case sandbox.stopped && !first.stopped: // stopped normally; the next sandbox is awaited separately
			return
		case n.isRunning(sandbox):
			if !n.Sandboxes.Knows(sandbox.GetId()) && !n.isAttachedUnrecorded(sandbox.PodSandbox) {
				n.attachMissed(sandbox.PodSandbox)
			}
			return
		case n.runtime.reconnectedSince(begin):
			err := fmt.Errorf("cannot attach pod %s: the container runtime does not report its sandbox; delete the pod",
				pod)
			klog.FromContext(n.Work).Error(err, "The runtime does not list a sandbox", "pod", pod.String())
			n.Observer.AttachFailed(pod, records, err, 0)
			return
		}
		if n.runtime.reconnect(n.Clock.Now(), errMissedSandbox) {
			klog.FromContext(n.Work).Info("The runtime has not reported a sandbox", "pod", pod.String())
		}
	}
}

// unattached returns a pod's claims that have yet to be attached. It returns none if the pod is terminating or gone, or
// if the kubelet has not reported a sandbox for it.
func (n *nriPlugin) unattached(pod executor.Pod) []claims.Record {
	cached := n.Cluster.cachedPod(pod.Namespace, pod.Name, pod.UID)
	if cached == nil || isLeaving(cached) || !hasSandbox(cached) {
		return nil
	}
	records, err := n.claimsOf(&api.PodSandbox{Namespace: pod.Namespace, Name: pod.Name, Uid: pod.UID})
	if err != nil {
		return nil // the pod has no prepared claims of its own
	}
	return records
}

// isRunning reports whether the runtime has reported the sandbox and the sandbox's network namespace still exists.
func (n *nriPlugin) isRunning(sandbox reportedSandbox) bool {
	if sandbox.PodSandbox == nil || sandbox.stopped {
		return false
	}
	netns, err := n.Namespaces.pathOf(sandbox.PodSandbox)
	return err == nil && netns != "" && n.Sandboxes.NamespaceExists(netns)
}

// reconnect ends the current connection, unless there is none or the driver has recently ended one, and reports whether
// it did.
func (v *runtimeView) reconnect(now time.Time, reason error) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.connected == nil || v.end == nil || !v.ended.IsZero() && now.Sub(v.ended) < missedInterval {
		return false
	}
	close(v.connected) // close it now, so that callers wait for the list from the next connection
	v.connected, v.ended = nil, now
	v.end(reason)
	return true
}

// reconnectedSince reports whether the driver itself has ended a connection since the given time.
func (v *runtimeView) reconnectedSince(begin time.Time) bool { return v.now().ended.After(begin) }

// connectionOf returns a context that is canceled when the connection ends, and a function that ends the connection.
func (n *nriPlugin) connectionOf(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	n.runtime.mu.Lock()
	defer n.runtime.mu.Unlock()
	n.runtime.end = cancel
	return ctx, func() { cancel(nil) }
}
