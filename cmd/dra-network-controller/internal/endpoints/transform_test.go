package endpoints

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hostile returns object metadata of roughly the maximum size that the API server accepts.
func hostile(name string) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid", Labels: map[string]string{},
		Annotations:   map[string]string{"example.com/large": strings.Repeat("x", 250<<10)},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: strings.Repeat("m", 128)}}}
	for i := range 10_000 {
		meta.Labels[fmt.Sprintf("example.com/label-%d", i)] = strings.Repeat("v", 63)
	}
	return meta
}

// The cache stores only a limited part of each object, regardless of what users have written.
func TestHostileObjectsStaySmall(t *testing.T) {
	const limit = 32 << 10 // bytes per object, as protobuf
	plain := &corev1.Service{ObjectMeta: hostile("plain")}
	asking := &corev1.Service{ObjectMeta: hostile("asking")}
	asking.Annotations = map[string]string{AnnotationTopology: strings.Repeat("t", 100<<10),
		AnnotationSelector: "app=" + strings.Repeat("s", 100<<10)}
	for _, service := range []*corev1.Service{plain, asking} {
		for i := range 5000 {
			service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("p%d", i),
				Port: int32(i + 1)}) //nolint:gosec // small
		}
		kept, err := TransformService(service)
		if err != nil || kept.(*corev1.Service).Size() > limit {
			t.Errorf("Service %s: %d bytes stored, error = %v", service.Name, kept.(*corev1.Service).Size(), err)
		}
		if query, err := ParseQuery(kept.(*corev1.Service)); query != nil || (err == nil) != (service == plain) {
			t.Errorf("Service %s: got query %v, error = %v", service.Name, query, err)
		}
	}
	plainPod := &corev1.Pod{ObjectMeta: hostile("plain")}
	labels := &corev1.Pod{ObjectMeta: hostile("labels")}
	labels.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "net"}}
	ports := labels.DeepCopy()
	ports.Labels = nil
	claims := ports.DeepCopy()
	for i := range 5000 {
		ports.Spec.Containers = append(ports.Spec.Containers, corev1.Container{
			Env:   []corev1.EnvVar{{Name: "E", Value: strings.Repeat("x", 200)}},
			Ports: []corev1.ContainerPort{{Name: fmt.Sprintf("p%d", i), ContainerPort: 1}}})
		claims.Spec.ResourceClaims = append(claims.Spec.ResourceClaims,
			corev1.PodResourceClaim{Name: fmt.Sprintf("claim-%d", i)})
	}
	for _, pod := range []*corev1.Pod{plainPod, labels, ports, claims} {
		kept, err := TransformPod(pod)
		if err != nil || kept.(*corev1.Pod).Size() > limit {
			t.Errorf("pod %s: %d bytes stored, error = %v", pod.Name, kept.(*corev1.Pod).Size(), err)
		}
	}
}

// If a Service has too many ports, this is reported to its author.
func TestServiceWithTooManyPorts(t *testing.T) {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		AnnotationTopology: "t", AnnotationSelector: "app=db"}}}
	for range maxPorts + 1 {
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Port: 1})
	}
	kept, err := TransformService(service)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseQuery(kept.(*corev1.Service)); err == nil || !strings.Contains(err.Error(), "more than 100 ports") {
		t.Errorf("error = %v, want \"more than 100 ports\"", err)
	}
	service.Spec.Ports = service.Spec.Ports[1:]
	if _, err := ParseQuery(service); err != nil {
		t.Errorf("a Service with %d ports is rejected: %v", maxPorts, err)
	}
}

func TestObjectsThatAreNotCached(t *testing.T) {
	for name, transform := range map[string]func(any) (any, error){"Service": TransformService, "Pod": TransformPod} {
		if _, err := transform("name"); err == nil || !strings.Contains(err.Error(), "as a "+name) {
			t.Errorf("error = %v, want one that names the type", err)
		}
	}
}
