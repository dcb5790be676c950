package plugin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

// A runtime may create a sandbox while the driver connects, and neither list it nor report it (CRI-O 1.37, which does
// not hold pods back during Synchronize). The driver would never attach such a sandbox. The kubelet reports in the
// pod's status that the sandbox exists (condition PodReadyToStartContainers), so the driver compares.

const (
	// missedDelay is the time after the kubelet's report until the runtime must have reported the sandbox. Usually it
	// has done so before, because the kubelet waits for RunPodSandbox. It doubles with each attempt.
	missedDelay = 3 * time.Second
	// missedAttempts is the number of new connections after which the pod gets an event instead.
	missedAttempts = 3
)

// errMissedSandbox ends a connection, so that the runtime lists its sandboxes again.
var errMissedSandbox = errors.New("the runtime has not reported a sandbox that the kubelet has; requesting a new list")

// reportedSandboxes contains the sandbox of each pod that the runtime has listed or reported on the current
// connection. It is safe for concurrent use.
type reportedSandboxes struct {
	mu    sync.Mutex
	byPod map[string]*api.PodSandbox // by UID
}

// replace forgets all sandboxes except those in the list of a new connection.
func (r *reportedSandboxes) replace(pods []*api.PodSandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byPod = make(map[string]*api.PodSandbox, len(pods))
	for _, pod := range pods {
		r.byPod[pod.GetUid()] = pod
	}
}

func (r *reportedSandboxes) add(pod *api.PodSandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byPod == nil {
		r.byPod = map[string]*api.PodSandbox{}
	}
	r.byPod[pod.GetUid()] = pod
}

// remove forgets a sandbox that has been stopped. The runtime may report this after the pod got another sandbox.
func (r *reportedSandboxes) remove(pod *api.PodSandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byPod[pod.GetUid()].GetId() == pod.GetId() {
		delete(r.byPod, pod.GetUid())
	}
}

// of returns the sandbox of a pod, or nil if the runtime has not reported one.
func (r *reportedSandboxes) of(podUID string) *api.PodSandbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byPod[podUID]
}

// onSandbox calls created when the kubelet reports that the sandbox of a pod exists.
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

// hasSandbox reports whether the kubelet has created the sandbox of a pod.
func hasSandbox(pod *corev1.Pod) bool { return len(sandboxCondition(pod)) > 0 }

// sandboxCondition returns the condition that the sandbox of a pod exists, or nothing if it does not.
func sandboxCondition(pod *corev1.Pod) []corev1.PodCondition {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReadyToStartContainers && condition.Status == corev1.ConditionTrue {
			return []corev1.PodCondition{{Type: condition.Type, Status: condition.Status}}
		}
	}
	return nil
}

// expectSandbox runs awaitSandbox in the background.
func (n *nriPlugin) expectSandbox(pod executor.Pod) {
	n.Sandboxes.GoTracked(func() { n.awaitSandbox(pod) })
}

// awaitSandbox waits until the runtime has reported the sandbox of a pod that the kubelet has created. If it does not,
// awaitSandbox requests a new list of sandboxes, and finally reports the fault to the pod.
//
// A sandbox whose claims were not prepared when it was reported is attached. Usually its containers trigger that (see
// attachMissed), but a runtime that resolves CDI devices before it calls the driver rejects them first.
func (n *nriPlugin) awaitSandbox(pod executor.Pod) {
	delay := missedDelay
	for attempt := 0; ; attempt++ {
		select {
		case <-n.Work.Done():
			return
		case <-n.Clock.After(delay):
		}
		records := n.unattached(pod)
		if len(records) == 0 {
			return
		}
		if sandbox := n.reported.of(pod.UID); sandbox != nil {
			n.attachMissed(sandbox)
			return
		}
		if attempt == missedAttempts {
			err := fmt.Errorf("cannot attach pod %s: the container runtime does not report its sandbox; delete the pod",
				pod)
			klog.FromContext(n.Work).Error(err, "The runtime does not list a sandbox", "pod", pod.String())
			n.Observer.AttachFailed(pod, records, err, 0)
			return
		}
		klog.FromContext(n.Work).Info("The runtime has not reported a sandbox", "pod", pod.String(), "again", 2*delay)
		n.reconnect(errMissedSandbox)
		delay *= 2
	}
}

// unattached returns the claims of a pod that have to be attached but are not even being attached.
func (n *nriPlugin) unattached(pod executor.Pod) []claims.Record {
	if n.Cluster.podIsLeaving(pod.UID) {
		return nil
	}
	if sandbox := n.reported.of(pod.UID); sandbox != nil && n.Sandboxes.Knows(sandbox.GetId()) {
		return nil
	}
	records, err := n.claimsOf(&api.PodSandbox{Namespace: pod.Namespace, Name: pod.Name, Uid: pod.UID})
	if err != nil {
		return nil // the pod has no prepared claims of its own
	}
	return records
}

// reconnect ends the current connection with a reason.
func (n *nriPlugin) reconnect(reason error) {
	n.runtime.mu.Lock()
	defer n.runtime.mu.Unlock()
	if n.runtime.end != nil {
		n.runtime.end(reason)
	}
}

// connectionOf returns a context for one connection, which ends with it, and a function that ends the connection.
func (n *nriPlugin) connectionOf(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	n.runtime.mu.Lock()
	defer n.runtime.mu.Unlock()
	n.runtime.end = cancel
	return ctx, func() { cancel(nil) }
}
