package simulate

import (
	"cmp"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
)

// workload is an object whose controller makes pods.
type workload struct {
	metav1.Object
	kind     string
	template *corev1.PodTemplateSpec
	// count is how many pods it has at once, and first the number in the name of the first.
	count, first int
}

// mostPods bounds what one workload may ask for: each pod is a run of the scheduler's allocator.
const mostPods = 1000

// workloadOf returns nil for an object of another kind. Counts have the defaults of the API server.
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
		w.first = 0 // pods of a StatefulSet have names that last
		if o.Spec.Ordinals != nil {
			w.first = int(o.Spec.Ordinals.Start)
		}
	case *batchv1.Job:
		set(o.Spec.Parallelism, &o.Spec.Template)
		w.count = min(w.count, int(ptr.Deref(o.Spec.Completions, int32(w.count)))) // no more run at once
	default:
		return nil
	}
	return w
}

func (w *workload) title() string { return w.kind + " " + fullName(w) }

// pods are those that run at once. Those of a StatefulSet have the names that they will have; of others the names are
// random, and numbers stand for them.
func (w *workload) pods() []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range w.count {
		pod := &corev1.Pod{ObjectMeta: *w.template.ObjectMeta.DeepCopy(), Spec: *w.template.Spec.DeepCopy()}
		pod.Namespace, pod.Name = namespaceOf(w), fmt.Sprintf("%s-%d", w.GetName(), w.first+i)
		pods = append(pods, pod)
	}
	return pods
}

// addWorkload adds the pods of a workload to what is tried, in its place.
func (w *input) addWorkload(found *manifest.Document, added *workload) error {
	if added.count < 0 || added.count > mostPods {
		return fmt.Errorf("%s: cannot simulate %s: it has %d pods at once, and at most %d are simulated; give it "+
			"another number", found.Location(), added.title(), added.count, mostPods)
	}
	w.workloads = append(w.workloads, added)
	for _, pod := range added.pods() {
		w.pods, w.order = append(w.pods, pod), append(w.order, pod)
		w.makers[pod] = added
	}
	return nil
}

// dropOwned leaves out what a workload of the files makes, as "kubectl get deploy,rs,pod -o yaml" prints it: its pods
// would be tried twice.
func (w *input) dropOwned() {
	isOwned := func(object metav1.Object) bool {
		owner := metav1.GetControllerOfNoCopy(object)
		return owner != nil && slices.ContainsFunc(w.workloads, func(other *workload) bool {
			return other.kind == owner.Kind && other.GetName() == owner.Name &&
				namespaceOf(other) == namespaceOf(object)
		})
	}
	leftOut := func(object metav1.Object) bool {
		pod, isPod := object.(*corev1.Pod)
		return isPod && (isOwned(pod) || w.makers[pod] != nil && isOwned(w.makers[pod]))
	}
	w.pods = slices.DeleteFunc(w.pods, func(pod *corev1.Pod) bool { return leftOut(pod) })
	w.order = slices.DeleteFunc(w.order, leftOut)
	for _, added := range w.workloads {
		if added.count == 0 && !isOwned(added) {
			w.remarks = append(w.remarks, fmt.Sprintf("%s %s has no pods: it has 0 replicas", added.kind,
				added.GetName()))
		}
	}
}

// addUnknown adds a remark on a kind that makes pods and is not simulated. Any other is none of ours.
func (w *input) addUnknown(found *manifest.Document) {
	const advice = "give a Pod like those of its template"
	name := found.Kind + " " + found.Name
	if _, same := kubernetesKinds()[found.Kind]; same { // that of another project
		name += " of " + groupOf(found)
	}
	if found.Kind == "DaemonSet" {
		w.remarks = append(w.remarks, fmt.Sprintf("%s is not looked at: how many pods it has depends on its nodes; "+
			"%s, to see on which nodes one fits", name, advice))
		return
	}
	var content map[string]any
	if yaml.Unmarshal(found.Data, &content) != nil || !hasPodSpec(content) {
		return
	}
	w.remarks = append(w.remarks, fmt.Sprintf("%s is not looked at: netdra simulates pods of %s; %s", name,
		workloadKinds, advice))
}

// workloadKinds are the kinds whose pods are simulated, as texts name them.
const workloadKinds = "Deployment, StatefulSet, ReplicaSet, ReplicationController and Job"

// hasPodSpec reports whether a value has the specification of a pod somewhere: kinds of other projects have it at
// different places, and those of virtual machines have claims without containers.
func hasPodSpec(value any) bool {
	switch v := value.(type) {
	case []any:
		return slices.ContainsFunc(v, hasPodSpec)
	case map[string]any:
		for key, inner := range v {
			_, isList := inner.([]any)
			if isList && (key == "containers" || key == "resourceClaims") || key != "status" && hasPodSpec(inner) {
				return true
			}
		}
	}
	return false
}

// follows reports whether two pods are of one template. The second of two that are tried one after the other does not
// fit if the first does not: a pod that is refused takes nothing, and nothing is released in between.
func (t *trial) follows(other *trial) bool { return t.maker != nil && t.maker == other.maker }

// sameRefusal is the answer for a pod whose predecessor of the same template was refused. Each refusal asks the
// allocator once for each held claim, which for hundreds of replicas would take hours.
func sameRefusal(t *trial, before *Answer) Answer {
	return Answer{What: t.title, As: cmp.Or(before.As, before.What)}
}
