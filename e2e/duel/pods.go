package duel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
)

// errTooLong means that a pod did not reach the expected state within readyIn.
var errTooLong = errors.New("it took too long")

// readyIn is the time limit for starting a pod. It is longer than the kubelet's longest retry delay, so that a single
// failed attempt does not make the start fail.
const readyIn = 2 * time.Minute

// pod returns a pod that sleeps until it receives a signal and then exits immediately.
func pod(name string, r request) *corev1.Pod {
	grace, token := int64(5), false
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"duel": "pod"}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &token,
			Containers: []corev1.Container{{
				Name: "main", Image: lab.ToolboxImage, ImagePullPolicy: corev1.PullIfNotPresent,
				Command: []string{"sh", "-c", "trap 'exit 0' TERM; sleep 86400 & wait"},
			}},
		},
	}
	if r.claim != "" {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "net", ResourceClaimTemplateName: &r.claim}}
		p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "net"}}
	}
	if r.networks != "" {
		p.Annotations = map[string]string{"k8s.v1.cni.cncf.io/networks": r.networks}
	}
	return p
}

// follower watches all pods in the duel, so that no watch has to be established while the clock is running. It receives
// and stores events immediately, because the server terminates a watch if its events are not read. The channel has room
// for all events in a series, so the goroutine never blocks. The goroutine records the time at which each event
// arrives, not the time at which a caller reads it. It writes failed before it closes the channel, and callers only
// read failed after the channel is closed, so this is not a data race.
type follower struct {
	cancel context.CancelFunc
	events chan seenPod // never full
	failed error        // why the watch ended, if it has
}

// seenPod is a watch event with its arrival time.
type seenPod struct {
	when  time.Time
	event watch.EventType
	pod   *corev1.Pod
}

// mostEvents exceeds the number of events in one series: each pod causes about ten events.
const mostEvents = 100_000

// follow watches the pods in the run. Times are recorded when events arrive, so samples do not depend on a polling
// interval.
func (a *arena) follow(ctx context.Context) (*follower, error) {
	ctx, cancel := context.WithCancel(ctx)
	// A retry watcher continues after a lost connection, which is likely when there are many events.
	options := metav1.ListOptions{LabelSelector: "duel=pod"}
	var pods *toolswatch.RetryWatcher
	now, err := a.client.CoreV1().Pods("default").List(ctx, options)
	if err == nil {
		pods, err = toolswatch.NewRetryWatcherWithContext(ctx, now.ResourceVersion, &cache.ListWatch{
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.LabelSelector = options.LabelSelector
				return a.client.CoreV1().Pods("default").Watch(ctx, o)
			},
		})
	}
	if err != nil {
		cancel()
		return nil, err
	}
	f := &follower{cancel: cancel, events: make(chan seenPod, mostEvents)}
	go func() {
		defer close(f.events)
		defer pods.Stop()
		for event := range pods.ResultChan() { // the channel is closed when the context is canceled
			pod, ok := event.Object.(*corev1.Pod)
			if !ok {
				f.failed = fmt.Errorf("cannot follow pods: %w; measure again", apierrors.FromObject(event.Object))
				return
			}
			f.events <- seenPod{when: time.Now(), event: event.Type, pod: pod}
		}
	}()
	return f, nil
}

func (f *follower) stop() { f.cancel() }

// wait waits for an event that done accepts, and returns its arrival time. It drops other events, so callers must wait
// for pods in creation order. It must not be called concurrently.
func (f *follower) wait(parent context.Context, what string, done func(watch.EventType, *corev1.Pod) bool) (
	time.Time, error,
) {
	ctx, cancel := context.WithTimeout(parent, readyIn)
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("cannot go on: %s not after %s: %w", what, readyIn,
				cmp.Or(context.Cause(parent), errTooLong))
		case seen, open := <-f.events:
			switch {
			case !open:
				return time.Time{}, cmp.Or(f.failed,
					errors.New("cannot follow pods: the watch has ended; measure again"))
			case done(seen.event, seen.pod):
				return seen.when, nil
			}
		}
	}
}

func ready(name string) func(watch.EventType, *corev1.Pod) bool {
	return func(_ watch.EventType, p *corev1.Pod) bool { return p.Name == name && isReady(p) }
}

func gone(name string) func(watch.EventType, *corev1.Pod) bool {
	return func(event watch.EventType, p *corev1.Pod) bool { return p.Name == name && event == watch.Deleted }
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// makeReady creates a pod, and starts its deletion when it is Ready; the pod is still terminating when makeReady
// returns. The measured time, in milliseconds, starts before the request to create the pod, and ends when this process
// receives the event that the pod is Ready. It therefore includes the API server's time, which is the same for all
// contestants.
func (a *arena) makeReady(ctx context.Context, f *follower, name string, r request, options metav1.DeleteOptions) (
	milliseconds float64, err error,
) {
	pods := a.client.CoreV1().Pods("default")
	start := time.Now()
	if _, err := pods.Create(ctx, pod(name, r), metav1.CreateOptions{}); err != nil {
		return 0, err
	}
	end, err := f.wait(ctx, "pod "+name+" is Ready", ready(name))
	if err != nil {
		return 0, err
	}
	took := end.Sub(start)
	if took > slow {
		a.tellSlow(ctx, name, took)
	}
	if err := pods.Delete(ctx, name, options); err != nil && !apierrors.IsNotFound(err) {
		return 0, err
	}
	return took.Seconds() * 1000, nil
}

// slow is longer than any pod takes to start if it does not have to wait.
const slow = 3 * time.Second

// tellSlow prints the events for a pod that took too long, because the only evidence of the cause is lost when the
// contestant's cluster terminates.
func (a *arena) tellSlow(ctx context.Context, name string, took time.Duration) {
	events, err := a.client.CoreV1().Events(metav1.NamespaceDefault).List(ctx,
		metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	_, _ = fmt.Fprintf(a.options.Progress, "    pod %s of cluster %s took %d ms\n", name, a.options.Cluster,
		took.Milliseconds())
	if err != nil {
		return // the more important part, the time, is already printed
	}
	for i := range events.Items {
		e := &events.Items[i]
		_, _ = fmt.Fprintf(a.options.Progress, "      %s %s: %s\n",
			e.LastTimestamp.UTC().Format(time.TimeOnly), e.Reason, e.Message)
	}
}

// series creates n pods, each as soon as deletion of the previous pod has started. An additional first pod is not
// counted, because classes, policies and caches are new at that point.
func (a *arena) series(ctx context.Context, prefix string, n int, r request, options metav1.DeleteOptions) (
	milliseconds []float64, err error,
) {
	f, err := a.follow(ctx)
	if err != nil {
		return nil, err
	}
	defer f.stop()
	for i := range n + 1 {
		name := fmt.Sprintf("%s-%d", prefix, i)
		took, err := a.makeReady(ctx, f, name, r, options)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			milliseconds = append(milliseconds, took)
			continue
		}
		if _, err := f.wait(ctx, "pod "+name+" is gone", gone(name)); err != nil {
			return nil, err
		}
	}
	return milliseconds, a.allGone(ctx)
}

// burst creates n pods concurrently and returns the times at which they became Ready, in ascending order. Pods that do
// not become Ready are left out. The time limit starts again whenever a pod becomes Ready.
func (a *arena) burst(ctx context.Context, n int, r request) (milliseconds []float64, err error) {
	f, err := a.follow(ctx)
	if err != nil {
		return nil, err
	}
	defer f.stop()
	start, failed := time.Now(), make(chan error, n)
	for i := range n {
		go func() {
			_, err := a.client.CoreV1().Pods("default").Create(ctx, pod(fmt.Sprintf("burst-%03d", i), r),
				metav1.CreateOptions{})
			failed <- err
		}()
	}
	for range n {
		err = errors.Join(err, <-failed)
	}
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for len(seen) < n {
		end, err := f.wait(ctx, fmt.Sprintf("%d of %d pods are Ready, the next", len(seen), n),
			func(_ watch.EventType, p *corev1.Pod) bool {
				if !isReady(p) || seen[p.Name] {
					return false
				}
				seen[p.Name] = true
				return true
			})
		if errors.Is(err, errTooLong) {
			break
		}
		if err != nil {
			return nil, err
		}
		milliseconds = append(milliseconds, end.Sub(start).Seconds()*1000)
	}
	err = a.client.CoreV1().Pods("default").DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: "duel=pod"})
	return milliseconds, errors.Join(err, a.allGone(ctx))
}

// allGone waits until none of the duel's pods exist any longer.
func (a *arena) allGone(ctx context.Context) error {
	for end := time.Now().Add(readyIn); ; {
		list, err := a.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "duel=pod"})
		if err != nil || len(list.Items) == 0 {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("cannot go on: %d pods are not gone after %s", len(list.Items), readyIn)
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}
