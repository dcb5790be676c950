package suite

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/yaml"
)

// With ten links, repeatedly create a pod with one exclusive claim, wait until it is Ready and delete it, in a tight
// loop. Do the same for pods without claims. The times are printed, not asserted.
func TestTimesOfTightLoop(t *testing.T) {
	e := newEnv(t, "loop")
	var links []string
	for i := range 10 {
		links = append(links, fmt.Sprintf("lp%d", i))
		e.veth(links[i])
	}
	e.apply(documents(expose("lp", "host-device", false, links...), topology("lp", `
- name: link
  type: host-device
  selector: {cel: 'device.attributes["dra.networking"].ifName.startsWith("lp")'}
  config: {ipam: {type: host-local, subnet: 10.121.0.0/24}}`), claimTemplate("lp", "lp-link")))
	e.offer(links...)
	plain, claimed := e.loop("plain", "", 5**samples), e.loop("claimed", "lp", 5**samples)
	for _, series := range []struct {
		name  string
		times []time.Duration
	}{{"without a claim", plain}, {"with an exclusive claim", claimed}} {
		slices.Sort(series.times)
		t.Logf("create to Ready %-24s P50 %s  P90 %s  max %s", series.name, percentile(series.times, 50),
			percentile(series.times, 90), percentile(series.times, 100))
	}
	t.Logf("difference at P50: %s", percentile(claimed, 50)-percentile(plain, 50))
}

func percentile(sorted []time.Duration, percent int) time.Duration {
	return sorted[max(0, len(sorted)*percent/100-1)].Round(time.Millisecond)
}

// loop returns how long each pod took from creation to Ready. It deletes each pod as soon as the pod is Ready and
// immediately creates the next one.
func (e *env) loop(name, template string, n int) []time.Duration {
	e.Helper()
	return e.loopWith(name, template, n, metav1.DeleteOptions{})
}

// loopWith is like loop, but with options for deleting pods.
func (e *env) loopWith(name, template string, n int, deletion metav1.DeleteOptions) []time.Duration {
	e.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	pods := e.client.CoreV1().Pods(e.namespace)
	times := make([]time.Duration, 0, n)
	for i := range n {
		wanted := &corev1.Pod{}
		if err := yaml.Unmarshal([]byte(pod(fmt.Sprintf("%s-%d", name, i), template)), wanted); err != nil {
			e.Fatal(err)
		}
		watch, err := pods.Watch(ctx,
			metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", wanted.Name).String()})
		if err != nil {
			e.Fatal(err)
		}
		start := time.Now()
		if _, err := pods.Create(ctx, wanted, metav1.CreateOptions{}); err != nil {
			e.Fatal(err)
		}
		ready := false
		for event := range watch.ResultChan() {
			if seen, ok := event.Object.(*corev1.Pod); ok && isReady(seen) {
				ready = true
				break
			}
		}
		watch.Stop()
		if !ready {
			e.Fatalf("pod %s did not become Ready", wanted.Name)
		}
		times = append(times, time.Since(start))
		if err := pods.Delete(ctx, wanted.Name, deletion); err != nil && !apierrors.IsNotFound(err) {
			e.Fatal(err)
		}
	}
	e.eventually("every pod is gone", func(ctx context.Context) (bool, error) {
		left, err := pods.List(ctx, metav1.ListOptions{})
		return err == nil && len(left.Items) == 0, err
	})
	return times
}
