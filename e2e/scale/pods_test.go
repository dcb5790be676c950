package scale

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
)

const (
	deviceClass  = "scale"
	templateName = "scale"
)

// rate is the rate at which kube-scheduler bound pods that had been waiting for it.
type rate struct {
	Pods int `json:"pods"`
	// PodsPerSecond excludes the first pod, which has to wait for the scheduler's caches.
	PodsPerSecond float64 `json:"podsPerSecond"`
	// SchedulerMillisecondsPerPod is the CPU time that the scheduler used per pod.
	SchedulerMillisecondsPerPod float64 `json:"schedulerMillisecondsPerPod"`
	SchedulerBytes              int64   `json:"schedulerBytes"`
	APIServerBytes              int64   `json:"apiServerBytes"`
}

// follow watches objects from a resource version onward. It resumes if the API server closes the watch, which happens
// on a busy machine if events are not read in time.
func follow(
	t *testing.T, version string, start func(context.Context, metav1.ListOptions) (watch.Interface, error),
) *toolswatch.RetryWatcher {
	t.Helper()
	watcher, err := toolswatch.NewRetryWatcherWithContext(t.Context(), version,
		&cache.ListWatch{WatchFuncWithContext: start})
	if err != nil {
		t.Fatal(err)
	}
	return watcher
}

// schedule creates pods, each with a claim for one device, while the scheduler is stopped. It then starts the scheduler
// and takes measurements until the last pod is bound. Finally, it removes all pods and claims.
func (f *fleet) schedule(t *testing.T, pods int, layout layout) rate {
	t.Helper()
	ctx := t.Context()
	if err := f.Stop(ctx, lab.Scheduler, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	f.createPods(t, pods)
	waiting, err := f.client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	bound := follow(t, waiting.ResourceVersion, f.client.CoreV1().Pods(metav1.NamespaceDefault).Watch)
	defer bound.Stop()
	if err := f.Start(ctx, lab.Scheduler); err != nil {
		t.Fatal(err)
	}
	var first, last time.Time
	var before usage
	nodeOf := map[string]string{}
	profiled := func() {}
	for event := range bound.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			t.Fatalf("the watch of pods ended: %v", event.Object)
		}
		if pod.Spec.NodeName == "" || nodeOf[pod.Name] != "" {
			continue
		}
		nodeOf[pod.Name], last = pod.Spec.NodeName, time.Now()
		if len(nodeOf) == 1 {
			first, before = last, f.use(t, lab.Scheduler)
			profiled = f.profile(t, layout)
		}
		if len(nodeOf) == pods {
			break
		}
	}
	if len(nodeOf) < pods {
		t.Fatalf("only %d of %d pods were bound: %v", len(nodeOf), pods, context.Cause(ctx))
	}
	used := f.use(t, lab.Scheduler)
	profiled()
	f.deletePods(t)
	return rate{Pods: pods, PodsPerSecond: float64(pods-1) / last.Sub(first).Seconds(),
		SchedulerMillisecondsPerPod: float64((used.cpu - before.cpu).Milliseconds()) / float64(pods-1),
		SchedulerBytes:              used.resident, APIServerBytes: f.use(t, lab.APIServer).resident}
}

// createPods creates pods and waits until their claims have been created.
func (f *fleet) createPods(t *testing.T, pods int) {
	t.Helper()
	template := &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: templateName}}
	template.Spec.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "net",
		Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: deviceClass}}}
	api := f.client.ResourceV1().ResourceClaimTemplates(metav1.NamespaceDefault)
	if err := api.Delete(t.Context(), templateName, metav1.DeleteOptions{}); err != nil && !isNotFound(err) {
		t.Fatal(err)
	}
	if _, err := api.Create(t.Context(), template, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.each(t, pods, func(ctx context.Context, i int) error {
		name := templateName
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", i)}, Spec: corev1.PodSpec{
			Containers:     []corev1.Container{{Name: "main", Image: "never-pulled"}},
			ResourceClaims: []corev1.PodResourceClaim{{Name: "net", ResourceClaimTemplateName: &name}},
		}}
		_, err := f.client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	f.untilClaims(t, pods)
}

// deletePods deletes all pods, and waits until the pods and their claims no longer exist.
func (f *fleet) deletePods(t *testing.T) {
	t.Helper()
	now := int64(0)
	if err := f.client.CoreV1().Pods(metav1.NamespaceDefault).DeleteCollection(t.Context(),
		metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	f.untilClaims(t, 0)
}

// untilClaims waits until the given number of claims exists.
func (f *fleet) untilClaims(t *testing.T, count int) {
	t.Helper()
	seen := map[string]bool{}
	list, err := f.client.ResourceV1().ResourceClaims(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	claims := follow(t, list.ResourceVersion, f.client.ResourceV1().ResourceClaims(metav1.NamespaceDefault).Watch)
	defer claims.Stop()
	for i := range list.Items {
		seen[list.Items[i].Name] = true
	}
	for len(seen) != count {
		event, ok := <-claims.ResultChan()
		claim, isClaim := event.Object.(*resourceapi.ResourceClaim)
		if !ok || !isClaim {
			t.Fatalf("the watch ended after %d of %d claims: %v", len(seen), count, event.Object)
		}
		if seen[claim.Name] = true; event.Type == watch.Deleted {
			delete(seen, claim.Name)
		}
	}
}
