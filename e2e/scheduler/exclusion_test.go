package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
)

// TestExclusion tries every use of a NIC in combination with every other use, and with every pair of uses that are
// possible at the same time.
func TestExclusion(t *testing.T) {
	onEvery(t, func(t *testing.T, p *plane) {
		var results []*matrix
		t.Run("cases", func(t *testing.T) {
			for _, c := range exclusionMachines() {
				m := &matrix{nics: c, rows: append(c.allSeries(2), c.allSeries(3)...), seen: map[string]bool{}}
				results = append(results, m)
				t.Run(m.name, func(t *testing.T) {
					t.Parallel()
					m.fill(t, p)
				})
			}
		})
		for _, m := range results {
			t.Logf("%s\n%s", p.version, m)
		}
	})
}

// try uses a NIC in several ways and reports whether the scheduler allowed the last use.
func (n node) try(ctx context.Context, nic, arrival string, s series, refusals *refusals) (bool, error) {
	if arrival == "pods" {
		return n.tryPods(ctx, nic, s, refusals)
	}
	var requests []request
	for _, u := range s {
		requests = append(requests, request{class: u.plugin, nic: nic})
	}
	claims := []resourceapi.ResourceClaimSpec{claim(requests...)}
	if arrival == "claims" {
		claims = nil
		for _, r := range requests {
			claims = append(claims, claim(r))
		}
	}
	pod, err := n.pod(ctx, nic, n.templates, claims...)
	if err != nil {
		return false, err
	}
	if s.fits() {
		return true, n.got(ctx, pod, nic, s...)
	}
	return refusals.expect(ctx, n, pod)
}

// tryPods creates a pod for each use. If the last pod is rejected, the scheduler must schedule it once the pods that
// exclude it have been deleted.
func (n node) tryPods(ctx context.Context, nic string, s series, refusals *refusals) (bool, error) {
	var pods []string
	for i, u := range s {
		pod, err := n.pod(ctx, fmt.Sprintf("%s-%d", nic, i), false, claim(request{class: u.plugin, nic: nic}))
		if err == nil && (i < len(s)-1 || s.fits()) {
			err = n.got(ctx, pod, nic, u)
		}
		if err != nil {
			return false, err
		}
		pods = append(pods, pod)
	}
	if s.fits() {
		return true, nil
	}
	last := len(s) - 1
	if used, err := refusals.expect(ctx, n, pods[last]); err != nil || used {
		return used, err
	}
	refusals.forget(pods[last])
	for i, u := range s[:last] {
		if together(u, s[last]) {
			continue
		}
		if err := n.release(ctx, pods[i]); err != nil {
			return false, err
		}
	}
	return false, n.got(ctx, pods[last], nic, s[last])
}

// got waits until a pod is scheduled, and checks that it was allocated devices on the NIC for the given uses.
func (n node) got(ctx context.Context, pod, nic string, uses ...use) error {
	devices, err := n.allocated(ctx, pod)
	if err != nil {
		return err
	}
	for i, u := range uses {
		prefix := nic + "-"
		if u.function {
			prefix = nic + "v"
		}
		if i >= len(devices) || !strings.HasPrefix(devices[i].Device, prefix) ||
			!strings.HasSuffix(devices[i].Device, "-"+u.name) {
			return fmt.Errorf("pod %s got %s, want %s of %s", pod, names(devices), series(uses).names(), nic)
		}
	}
	return nil
}

// refusals is the set of pods that must stay rejected.
type refusals struct {
	mu   sync.Mutex
	pods map[string]bool
}

// expect waits for the scheduler's decision on a pod that should be rejected, and reports whether the pod was
// scheduled.
func (r *refusals) expect(ctx context.Context, n node, pod string) (bool, error) {
	if used, err := n.decided(ctx, pod); used || err != nil {
		return used, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pods == nil {
		r.pods = map[string]bool{}
	}
	r.pods[pod] = true
	return false, nil
}

// forget removes a pod that is now allowed to be scheduled.
func (r *refusals) forget(pod string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pods, pod)
}

// stand checks that no rejected pod was scheduled later, because the scheduler's first decision could have been
// premature.
func (r *refusals) stand(n node) error {
	var wrong []error
	for pod := range r.pods {
		if v, _ := n.verdict(pod); v == scheduled {
			wrong = append(wrong, fmt.Errorf("pod %s was rejected at first but is now scheduled", pod))
		}
	}
	return errors.Join(wrong...)
}
