package simulate

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
)

// workload is an object whose controller creates pods.
type workload struct {
	metav1.Object
	kind     string
	template *corev1.PodTemplateSpec
	// count is the number of concurrent pods; first is the number in the first pod's name.
	count, first int
}

// mostPods limits the number of pods per workload, because the scheduler's allocator runs for each pod.
const mostPods = 1000

// workloadOf returns the workload for an object, or nil for other kinds. Missing counts get the API server's defaults.
func workloadOf(object metav1.Object, kind string) *workload {
	w := &workload{Object: object, kind: kind, count: 1, first: 1}
	set := func(count *int32, template *corev1.PodTemplateSpec) {
		w.count, w.template = int(ptr.Deref(count, 1)), template
	}
	switch o := object.(type) {
	case *appsv1.Deployment:
		set(o.Spec.Replicas, &o.Spec.Template)
	case *appsv1.ReplicaSet:
		set(o.Spec.Replicas, &o.Spec.Template)
	case *corev1.ReplicationController:
		set(o.Spec.Replicas, ptr.To(ptr.Deref(o.Spec.Template, corev1.PodTemplateSpec{})))
	case *appsv1.StatefulSet:
		set(o.Spec.Replicas, &o.Spec.Template)
		w.first = 0 // pods of a StatefulSet have stable names, starting at 0
		if o.Spec.Ordinals != nil {
			w.first = int(o.Spec.Ordinals.Start)
		}
	case *batchv1.Job:
		set(o.Spec.Parallelism, &o.Spec.Template)
		w.count = min(w.count, int(ptr.Deref(o.Spec.Completions, int32(w.count)))) // no more pods run concurrently
	default:
		return nil
	}
	return w
}

func (w *workload) title() string { return w.kind + " " + fullName(w) }

// pods returns the concurrent pods. Pods of a StatefulSet have their real names. In a cluster, the names of other pods
// end in a random suffix; here they are numbered.
func (w *workload) pods() []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range w.count {
		pod := &corev1.Pod{ObjectMeta: *w.template.ObjectMeta.DeepCopy(), Spec: *w.template.Spec.DeepCopy()}
		pod.Namespace, pod.Name = namespaceOf(w), fmt.Sprintf("%s-%d", w.GetName(), w.first+i)
		pods = append(pods, pod)
	}
	return pods
}

// addWorkload adds the pods of a workload at its position in the order.
func (m *model) addWorkload(found *manifest.Document, added *workload) error {
	if added.count < 0 || added.count > mostPods {
		return fmt.Errorf("%s: cannot simulate %s: it has %d pods, but at most %d can be simulated; "+
			"reduce the number", found.Location(), added.title(), added.count, mostPods)
	}
	m.workloads = append(m.workloads, added)
	for _, pod := range added.pods() {
		m.order = append(m.order, pod)
		m.makers[pod] = added
	}
	return nil
}

// dropOwned removes objects that are owned by a workload in the files, as in the output of "kubectl get deploy,rs,pod
// -o yaml". Otherwise the same pods would be simulated twice.
func (m *model) dropOwned() {
	isOwned := func(object metav1.Object) bool {
		owner := metav1.GetControllerOfNoCopy(object)
		return owner != nil && slices.ContainsFunc(m.workloads, func(other *workload) bool {
			return other.kind == owner.Kind && other.GetName() == owner.Name &&
				namespaceOf(other) == namespaceOf(object)
		})
	}
	leftOut := func(object metav1.Object) bool {
		pod, isPod := object.(*corev1.Pod)
		return isPod && (isOwned(pod) || m.makers[pod] != nil && isOwned(m.makers[pod]))
	}
	m.order = slices.DeleteFunc(m.order, leftOut)
	for _, added := range m.workloads {
		if added.count == 0 && !isOwned(added) {
			m.remarks = append(m.remarks, fmt.Sprintf("%s %s has no pods: it has 0 replicas", added.kind,
				added.GetName()))
		}
	}
}

// addUnknown adds a remark if an unsupported kind creates pods, such as a DaemonSet, whose containers may request
// extended resources. Other kinds are ignored.
func (m *model) addUnknown(found *manifest.Document) {
	if bytes.Contains(found.Data, []byte("resourceClaims:")) || bytes.Contains(found.Data, []byte("containers:")) {
		m.remarks = append(m.remarks, fmt.Sprintf("%s %s is not simulated: netdra simulates pods of Deployment, "+
			"StatefulSet, ReplicaSet, ReplicationController and Job; give a Pod like those of its template", found.Kind,
			found.Name))
	}
}

// follows reports whether two pods have the same template. If the first of two consecutive pods does not fit, neither
// does the second: a refused pod does not take any devices, and nothing is released in between.
func (t *trial) follows(other *trial) bool { return t.maker != nil && t.maker == other.maker }

// sameRefusal returns the answer for a pod whose predecessor from the same template was refused. Computing a refusal
// runs the allocator once per allocated claim, which would take hours for hundreds of replicas.
func sameRefusal(t *trial, before *Answer) Answer {
	return Answer{What: t.title, As: cmp.Or(before.As, before.What)}
}
