package controller

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

var hostileObjects = flag.Int("hostile", 300, "claims, pods and Services, each, of the hostile user")

// The memory limit that the chart sets for the controller.
const (
	memoryRequest = "128MiB"
	memoryLimit   = 256 << 20
)

// A user with the edit role in a single namespace creates claims, pods and Services of the maximum size that the API
// server accepts. The controller stays below its memory limit, even if all of these objects exist when it starts, and
// continues to accept topologies.
func TestHostileUser(t *testing.T) {
	p := newPlane(t)
	start := func() (stop func()) {
		return p.start("controller", "env", "GOMEMLIMIT="+memoryRequest,
			filepath.Join(p.clone, "bin", "dra-network-controller"), "--kubeconfig="+p.Kubeconfig(),
			"--metrics-bind-address="+metricsAddress, "--service-endpoints")
	}
	stop := start()
	p.settled(0)
	before, err := p.counts()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.api.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "hostile"}}); err != nil {
		t.Fatal(err)
	}
	var created atomic.Int64
	done := make(chan error, 1)
	began := time.Now()
	go func() { done <- p.flood(&created) }()
	w := &watch{plane: p}
	for flooding := true; flooding; {
		w.accept()
		select {
		case err = <-done:
			flooding = false
		default:
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d objects in %s; the controller used %s, then at most %s; the slowest topology was accepted after %s",
		created.Load(), time.Since(began).Round(time.Second), mebibytes(before.resident), mebibytes(w.resident), w.slowest)
	stop()
	defer start()()
	again := &watch{plane: p}
	for range 5 {
		again.accept()
	}
	t.Logf("after a restart with all objects, the controller used at most %s; the slowest topology took %s",
		mebibytes(again.resident), again.slowest)
}

func mebibytes(bytes int) string { return fmt.Sprintf("%d MiB", bytes>>20) }

// watch records the controller's peak memory usage and the longest time that it took to accept a topology.
type watch struct {
	*plane
	resident int
	slowest  time.Duration
}

// accept creates a topology, waits until it is accepted, and compares the controller's memory usage with its limit.
func (w *watch) accept() {
	w.t.Helper()
	topology := &v1alpha1.NetworkTopology{ObjectMeta: metav1.ObjectMeta{GenerateName: "honest-"}}
	topology.Spec.Steps = []v1alpha1.Step{{Name: "port", Type: "macvlan",
		Selector: &v1alpha1.StepSelector{CEL: `device.attributes["dra.networking"].ifName == "eth1"`}}}
	if err := w.api.Create(w.t.Context(), topology); err != nil {
		w.t.Fatal(err)
	}
	start := time.Now()
	w.until("the topology is accepted", func() error {
		if now, err := w.counts(); err == nil {
			w.resident = max(w.resident, now.resident)
		}
		err := w.api.Get(w.t.Context(), types.NamespacedName{Name: topology.Name}, topology)
		if err == nil && !meta.IsStatusConditionTrue(topology.Status.Conditions, v1alpha1.ConditionAccepted) {
			err = fmt.Errorf("conditions are %v", topology.Status.Conditions)
		}
		return err
	})
	w.slowest = max(w.slowest, time.Since(start).Round(10*time.Millisecond))
	// Delete the topology, because every new claim is checked against every topology.
	if err := w.api.Delete(w.t.Context(), topology); err != nil {
		w.t.Fatal(err)
	}
	if w.resident > memoryLimit {
		w.t.Fatalf("the controller uses %s, more than its limit of %s", mebibytes(w.resident), mebibytes(memoryLimit))
	}
}

// flood creates the hostile user's objects, several at a time.
func (p *plane) flood(created *atomic.Int64) error {
	ctx, cancel := context.WithCancelCause(p.t.Context())
	defer cancel(nil)
	var workers sync.WaitGroup
	const parallel = 4
	for worker := range parallel {
		workers.Go(func() {
			for i := worker; i < *hostileObjects && ctx.Err() == nil; i += parallel {
				for _, object := range hostile(i) {
					if err := p.api.Create(ctx, object); err != nil {
						cancel(fmt.Errorf("cannot create object %d: %w", i, err))
						return
					}
					created.Add(1)
				}
			}
		})
	}
	workers.Wait()
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// hostile returns a claim, a pod that references it, and a Service that selects all hostile pods. Only the first 900
// claims have the maximum size, because etcd has no room for more of them.
func hostile(i int) []client.Object {
	const large = 900
	configs := 1
	if i < large {
		configs = 32
	}
	name := fmt.Sprintf("hostile-%d", i)
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "hostile", Name: name}}
	claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "r",
		Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "none"}}}
	for range configs {
		claim.Spec.Devices.Config = append(claim.Spec.Devices.Config, resourceapi.DeviceClaimConfiguration{
			DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
				Driver:     "example.com",
				Parameters: runtime.RawExtension{Raw: []byte(`{"x":"` + strings.Repeat("x", 9900) + `"}`)}}}})
	}
	padding := map[string]string{"example.com/padding": strings.Repeat("x", 20<<10)}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "hostile", Name: name, Annotations: padding,
		Labels: map[string]string{"app": "hostile"}}}
	for i := range 30 {
		pod.Labels[fmt.Sprintf("label-%d", i)] = strings.Repeat("v", 60)
	}
	pod.Spec = corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a",
		Args: []string{strings.Repeat("x", 10<<10)}}},
		ResourceClaims: []corev1.PodResourceClaim{{Name: "net", ResourceClaimName: &name}}}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "hostile", Name: name,
		Annotations: map[string]string{"networking.dra.io/endpoints-topology": "honest",
			"networking.dra.io/endpoints-selector": "app=hostile", "example.com/padding": padding["example.com/padding"]}}}
	service.Spec = corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: 80}}}
	return []client.Object{claim, pod, service}
}
