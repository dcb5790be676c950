package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"k8s.io/klog/v2"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/attach"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/internal/telemetry"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
)

// configSource is the annotation where the kubelet records the source of a pod.
const configSource = "kubernetes.io/config.source"

type nriConfig struct {
	components
	// Socket is the container runtime's NRI socket.
	Socket string
	// Namespaces finds the network namespaces of sandboxes.
	Namespaces namespaces
}

// nriPlugin implements the handlers that the container runtime calls. The runtime holds a node-wide lock during these
// calls, so for a pod without claims, the handlers perform only a map lookup.
type nriPlugin struct {
	nriConfig
	runtime runtimeView
	// unclaimed contains, by ID, the sandboxes that the runtime has reported and whose pods have no claims known to the
	// driver. Most pods do not use claims at all.
	unclaimed sync.Map
	reported  reportedSandboxes
}

func newNRIPlugin(c nriConfig) *nriPlugin { return &nriPlugin{nriConfig: c} }

func namesClaim(container *api.Container) bool { return len(partsNamed(container)) > 0 }

// partsNamed returns the parts of claims that a container names. For such a container, the kubelet passes the CDI
// devices of the claim's gate to the runtime. A runtime that does not report CDI devices to NRI plugins (CRI-O 1.37)
// reports the hook and the variables that these devices add to the container. Users can set variables but not hooks, so
// the variables only select parts of the claims that are identified by the hooks.
func partsNamed(container *api.Container) []attach.Part {
	var parts []attach.Part
	for _, device := range container.GetCDIDevices() {
		if part, ours := attach.PartOfDevice(device.GetName()); ours {
			parts = append(parts, part)
		}
	}
	for _, hook := range container.GetHooks().GetCreateRuntime() {
		uid, ours := nodeapi.ClaimOfHook(hook.GetArgs())
		if ours && !slices.ContainsFunc(parts, func(part attach.Part) bool { return part.ClaimUID == uid }) {
			parts = append(parts, attach.PartsOfEnv(uid, container.GetEnv())...)
		}
	}
	return parts
}

func isRunning(container *api.Container) bool {
	state := container.GetState()
	return state == api.ContainerState_CONTAINER_RUNNING || state == api.ContainerState_CONTAINER_PAUSED
}

// attachAfterResync attaches the pods independently of each other: a pod may have to wait until an interrupted
// attachment is rolled back, or until the API server returns its claims. busy contains the IDs of the sandboxes with
// running containers that name a claim.
func (n *nriPlugin) attachAfterResync(pods []*api.PodSandbox, busy map[string]bool) {
	listed := map[string]bool{}
	for _, pod := range pods {
		if isStatic(pod) {
			continue
		}
		netns, err := n.Namespaces.pathOf(pod)
		if err != nil {
			n.reportUnattachable(pod, err)
		}
		if netns != "" && len(pod.GetLinux().GetNamespaces()) == 0 {
			klog.FromContext(n.Work).Info("Runtime reports no network namespace for the sandbox; using the one of its "+
				"process", "pod", podOf(pod).String(), "sandbox", pod.GetId(), "netns", netns)
		}
		if netns != "" && n.Sandboxes.NamespaceExists(netns) { // otherwise the sandbox has terminated
			listed[pod.GetId()] = true
		}
	}
	n.Sandboxes.ExpectUnsynced(listed)
	for _, pod := range pods {
		if listed[pod.GetId()] {
			n.Sandboxes.GoTracked(func() { n.attachLate(pod, busy[pod.GetId()]) })
		}
	}
}

// reportUnattachable reports that a sandbox cannot be attached. It does nothing if the sandbox's pod has no claims.
func (n *nriPlugin) reportUnattachable(pod *api.PodSandbox, err error) {
	if records := n.Claims.OfPod(pod.GetUid()); len(records) > 0 {
		klog.FromContext(n.Work).Error(err, "Cannot attach a pod that started while the driver was disconnected", "pod",
			podOf(pod).String(), "sandbox", pod.GetId())
		n.Observer.AttachFailed(podOf(pod), records, err, 0)
	}
}

// attachLate retries until the pod is attached, has terminated, or turns out to need no attachment.
//
// It is started after all sandboxes in the runtime's list have been processed. It returns when the connection on which
// the sandbox was listed ends, or as soon as the sandbox is stopped and is therefore no longer expected.
func (n *nriPlugin) attachLate(pod *api.PodSandbox, busy bool) {
	logger := klog.FromContext(n.Work).WithValues("pod", podOf(pod).String(), "sandbox", pod.GetId())
	disconnected := n.runtime.now().connected
	if disconnected == nil {
		return
	}
	attempts := 0
	for delay := nriRetry; n.Sandboxes.IsUnsynced(pod.GetId()); delay = min(2*delay, attach.Retry) {
		// This also applies if the pod's claims are unknown because the API server has not responded yet.
		if _, ready, _ := n.Sandboxes.State(pod.GetId()); ready {
			return
		}
		records, err := n.claimsOf(pod)
		switch {
		case err == nil && (len(records) == 0 || !n.Sandboxes.IsUnsynced(pod.GetId())): // or it has just been stopped
			return
		case err == nil && busy && !n.Sandboxes.Knows(pod.GetId()): // otherwise it is being attached or detached
			err = fmt.Errorf("cannot attach claim %s: containers of pod %s that name it are already running, and the "+
				"driver has no record of their interfaces; delete the pod", records[0].Claim, podOf(pod))
			logger.Error(err, "Cannot attach a running pod; it is left unchanged")
			n.Observer.AttachFailed(podOf(pod), records, err, 0)
			return
		case err == nil && busy:
			err = errors.New("its earlier attachment is still being rolled back")
		case err == nil:
			if err = n.attachNow(pod, records); err == nil {
				logger.Info("Attaching a pod that started while the driver was disconnected")
				return
			}
		}
		if attempts++; attempts == toldAttempt && len(records) > 0 {
			n.Observer.AttachFailed(podOf(pod), records,
				fmt.Errorf("cannot yet attach a pod that started while the driver was disconnected: %w", err), delay)
		}
		logger.V(2).Info("Cannot attach a pod that started while the driver was disconnected; trying again", "err", err,
			"again", delay)
		select {
		case <-n.Work.Done():
			return
		case <-disconnected:
			return
		case <-n.Clock.After(delay):
		}
	}
}

// toldAttempt is the number of failed attempts after which an event is created for the pod: the first attempts fail if
// an earlier attachment is still being rolled back.
const toldAttempt = 6

// attachNow attaches a sandbox. It looks up the sandbox's namespace again, because the process through which the
// namespace was found may have terminated.
func (n *nriPlugin) attachNow(pod *api.PodSandbox, records []claims.Record) error {
	netns, err := n.Namespaces.pathOf(pod)
	if err == nil && netns == "" {
		err = fmt.Errorf("sandbox %s no longer has a network namespace", pod.GetId())
	}
	if err != nil {
		return err
	}
	return n.Sandboxes.AttachAfterResync(pod.GetId(), podOf(pod), netns, records)
}

// RunPodSandbox attaches the pod's claims. If it returns an error, the runtime stops the sandbox and the kubelet
// creates a new one.
func (n *nriPlugin) RunPodSandbox(ctx context.Context, pod *api.PodSandbox) (err error) {
	start := n.Clock.Now()
	defer func() {
		n.observe("RunPodSandbox", pod, n.Clock.Since(start), err)
		if err != nil {
			n.reported.remove(pod) // runtimes do not report when a sandbox that the driver rejected ends
		}
		err = telemetry.WireError(err)
	}()
	n.reported.add(pod)
	records, err := n.claimsOf(pod)
	if err == nil && len(records) == 0 && !isStatic(pod) {
		n.unclaimed.Store(pod.GetId(), pod)
	}
	if err != nil || len(records) == 0 {
		return err
	}
	netns, err := n.Namespaces.pathOf(pod)
	if err != nil {
		return err
	}
	if netns == "" && len(pod.GetLinux().GetNamespaces()) == 0 && pod.GetPid() == 0 {
		n.reportMissing(missingNamespaces)
		return fmt.Errorf("cannot attach pod %s: %s", podOf(pod), missingNamespaces)
	}
	if netns == "" {
		return fmt.Errorf("pod %s uses the host network and cannot get the interfaces of claim %s: remove "+
			"hostNetwork or the claim", podOf(pod), records[0].Claim)
	}
	if err := n.Sandboxes.Attach(ctx, pod.GetId(), podOf(pod), netns, records); err != nil {
		return fmt.Errorf("cannot attach pod %s: %w", podOf(pod), err)
	}
	return nil
}

// StopPodSandbox detaches the sandbox and waits briefly for the result. The runtime does not call it for pods that were
// started before the current runtime process.
func (n *nriPlugin) StopPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	start := n.Clock.Now()
	defer func() { n.observe("StopPodSandbox", pod, n.Clock.Since(start), nil) }()
	n.unclaimed.Delete(pod.GetId())
	n.reported.stop(pod)
	budget := n.Clock.NewTimer(n.Sandboxes.Budget(ctx))
	defer budget.Stop()
	select {
	case <-n.Sandboxes.StopSandbox(pod.GetId()):
	case <-ctx.Done():
	case <-budget.C():
	}
	return nil
}

// RemovePodSandbox handles the removal of a sandbox, which the runtime may report after, before or instead of the stop
// of the sandbox.
func (n *nriPlugin) RemovePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	n.unclaimed.Delete(pod.GetId())
	n.reported.remove(pod)
	n.Sandboxes.RemoveSandbox(pod.GetId())
	return nil
}

// CreateContainer holds back containers that the gate does not cover: containers that do not name the claim, and
// containers in additional pods that share a claim. For containers that name claims, it sets the limits from the
// claims' topologies.
func (n *nriPlugin) CreateContainer(
	_ context.Context, pod *api.PodSandbox, container *api.Container,
) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	n.reported.add(pod)
	err := n.mayStart(pod, container)
	var adjustment *api.ContainerAdjustment
	if err == nil {
		adjustment, err = n.adjust(pod, container)
	}
	if err != nil {
		klog.FromContext(n.Work).V(telemetry.LevelDecisions).Info("Held a container", "pod", podOf(pod).String(),
			"container", container.GetName(), "reason", err.Error())
	}
	return adjustment, nil, telemetry.WireError(err)
}

// memlock is the name of the locked-memory limit (getrlimit(2)) in the OCI runtime specification.
const memlock = "RLIMIT_MEMLOCK"

// adjust returns the resource limits for a container, based on the claims that it names, or nil if there are none. The
// runtime merges them into the container's specification.
func (n *nriPlugin) adjust(pod *api.PodSandbox, container *api.Container) (*api.ContainerAdjustment, error) {
	named := partsNamed(container)
	if len(named) == 0 {
		n.checkReported(pod, container)
		return nil, nil
	}
	limits, err := n.Sandboxes.ContainerLimits(pod.GetId(), named)
	if err != nil {
		return nil, fmt.Errorf("cannot create container %s of pod %s: %w", container.GetName(), podOf(pod), err)
	}
	if limits == (attach.ContainerLimits{}) {
		return nil, nil
	}
	adjustment := &api.ContainerAdjustment{}
	if limits.LockedMemory > 0 {
		adjustment.AddRlimit(memlock, limits.LockedMemory, limits.LockedMemory)
	}
	if limits.RDMA != "" {
		adjustment.AddLinuxUnified("rdma.max", limits.RDMA)
	}
	return adjustment, nil
}

// observe logs the response to the runtime and updates the metrics.
func (n *nriPlugin) observe(event string, pod *api.PodSandbox, duration time.Duration, err error) {
	telemetry.Observe(n.Metrics.hooks, duration, err, event)
	klog.FromContext(n.Work).V(telemetry.LevelCalls).Info("Answered the container runtime", "event", event, "pod",
		podOf(pod).String(), "sandbox", pod.GetId(), "duration", duration.Round(time.Microsecond), "err", err)
}

// mayStart returns the reason why a container must not start yet, or nil if it may start.
func (n *nriPlugin) mayStart(pod *api.PodSandbox, container *api.Container) error {
	known, ready, failure := n.Sandboxes.State(pod.GetId())
	named := partsNamed(container)
	switch {
	case ready:
		return n.checkGates(pod, container, named)
	case known && failure != nil:
		return fmt.Errorf("container %s waits for the interfaces of pod %s: %w", container.GetName(),
			podOf(pod), failure)
	case known:
		return fmt.Errorf("container %s waits for the interfaces of pod %s: they are being attached or detached",
			container.GetName(), podOf(pod))
	}
	if len(named) == 0 && n.runtime.now().decided.Has(pod.GetId()) && !n.isToBeAttached(pod) {
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
		n.attachMissed(pod)
		return fmt.Errorf("container %s waits for the interfaces of pod %s: claim %s is being attached",
			container.GetName(), podOf(pod), records[0].Claim)
	}
	if len(named) > 0 { // the gate is open for another pod with the claim
		return n.refuse(pod, container, named[0], "prepared for it on this node")
	}
	return nil
}

// checkGates returns an error if the hook would reject a container in an attached sandbox. The check is necessary
// because crun's error does not include the reason from the hook.
func (n *nriPlugin) checkGates(pod *api.PodSandbox, container *api.Container, named []attach.Part) error {
	for _, part := range named {
		if !n.Sandboxes.Admits(part.ClaimUID, pod.GetId()) {
			return n.refuse(pod, container, part, "attached to its sandbox")
		}
	}
	return nil
}

// refuse returns an error, and reports it for the pod, if a container names a claim that is not in the required state.
func (n *nriPlugin) refuse(pod *api.PodSandbox, container *api.Container, part attach.Part, state string) error {
	err := fmt.Errorf("cannot create container %s: pod %s names claim %s, which is not %s; delete the pod, so that it "+
		"is scheduled again", container.GetName(), podOf(pod), part.ClaimUID, state)
	n.Observer.AttachFailed(podOf(pod), nil, err, 0)
	return err
}

// attachMissed attaches, in the background, claims that RunPodSandbox did not attach to a sandbox, for example because
// they had not been prepared yet. If the attempts keep failing, an event is created for the pod.
func (n *nriPlugin) attachMissed(pod *api.PodSandbox) {
	if n.Sandboxes.ExpectAlso(pod.GetId()) {
		n.Sandboxes.GoTracked(func() { n.attachLate(pod, n.runtime.now().busy[pod.GetId()]) })
	}
}

// isToBeAttached reports whether a sandbox that existed before the driver process must be attached late, that is,
// whether its pod has prepared claims and no running container names them. The runtime's list alone is not sufficient,
// since it does not include containers whose creation was rejected.
func (n *nriPlugin) isToBeAttached(pod *api.PodSandbox) bool {
	return !n.runtime.now().busy[pod.GetId()] && len(attachable(n.Claims.OfPod(pod.GetUid()))) > 0
}

// isUnrecorded reports whether all claims that a container names are attached to its pod even though their records were
// lost with the journal.
func (n *nriPlugin) isUnrecorded(pod *api.PodSandbox, named []attach.Part) bool {
	netns, err := n.Namespaces.pathOf(pod)
	if err != nil || netns == "" {
		return false
	}
	return !slices.ContainsFunc(named,
		func(part attach.Part) bool { return !n.Sandboxes.AdmitsUnrecorded(part.ClaimUID, netns) })
}

// isStatic reports whether the kubelet got the pod from a source other than the API server. Such pods have no claims.
func isStatic(pod *api.PodSandbox) bool {
	source := pod.GetAnnotations()[configSource]
	return source != "" && source != "api"
}

func podOf(pod *api.PodSandbox) executor.Pod {
	return executor.Pod{Namespace: pod.GetNamespace(), Name: pod.GetName(), UID: pod.GetUid(),
		Annotations: pod.GetAnnotations()}
}
