package simulate

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
)

// workload is an object whose controller creates pods.
type workload struct {
	metav1.Object
	kind     string
	template *corev1.PodTemplateSpec
	// count is the number of pods that run concurrently. first is the number in the name of the first pod.
	count, first int
}

// mostPods is the maximum number of pods per workload. The scheduler's allocator runs for each pod.
const mostPods = 1000

// workloadOf returns the workload for an object and applies default counts. It returns nil for other kinds.
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
		w.first = 0 // pods in a StatefulSet have stable names, starting at 0
		if o.Spec.Ordinals != nil {
			w.first = int(o.Spec.Ordinals.Start)
		}
	case *batchv1.Job:
		set(o.Spec.Parallelism, &o.Spec.Template)
		w.count = min(w.count, int(ptr.Deref(o.Spec.Completions, int32(w.count)))) // not more than completions
	default:
		return nil
	}
	return w
}

func (w *workload) title() string { return w.kind + " " + fullName(w) }

// pods returns the pods that run concurrently. Pods in a StatefulSet have the same names as in a cluster. In a cluster,
// the names of other pods end with a random suffix; here, they end with a number.
func (w *workload) pods() []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range w.count {
		pod := &corev1.Pod{ObjectMeta: *w.template.ObjectMeta.DeepCopy(), Spec: *w.template.Spec.DeepCopy()}
		pod.Namespace, pod.Name = namespaceOf(w), fmt.Sprintf("%s-%d", w.GetName(), w.first+i)
		pods = append(pods, pod)
	}
	return pods
}

// addWorkload adds a workload's pods at the workload's position in m.order.
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

// dropOwned removes pods whose workload is also in the files, as in the output of "kubectl get deploy,rs,pod -o yaml".
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

// addUnknown adds a remark if the document's kind is not supported but creates pods (for example, a DaemonSet), because
// their containers may request extended resources. Other kinds are ignored.
func (m *model) addUnknown(found *manifest.Document) {
	if bytes.Contains(found.Data, []byte("resourceClaims:")) || bytes.Contains(found.Data, []byte("containers:")) {
		m.remarks = append(m.remarks, fmt.Sprintf("%s %s is not simulated: netdra simulates pods of Deployment, "+
			"StatefulSet, ReplicaSet, ReplicationController and Job; pass a Pod like those of its template", found.Kind,
			found.Name))
	}
}

// follows reports whether two pods have the same template. If two such pods are consecutive and the first does not fit,
// the second does not fit either: a refused pod consumes no devices, and nothing is released in between.
func (t *trial) follows(other *trial) bool { return t.maker != nil && t.maker == other.maker }

// sameRefusal returns the answer for a pod that follows a refused pod from the same template. It avoids computing the
// refusal again, which runs the allocator once per allocated claim and would take hours for hundreds of replicas.
func sameRefusal(t *trial, before *Answer) Answer {
	return Answer{What: t.title, As: cmp.Or(before.As, before.What)}
}

// If a pod requests extended resources defined by DeviceClasses, kube-scheduler creates a claim for them (KEP-5004).
// The functions below create the same claim, for nodes on which no device plugin provides the resource.

// addExtendedClaims adds the claims for extended resources to the pods' trials and drops trials without claims. classes
// must contain all classes, including those in the cluster. If a pod that the user named has no claim, it returns an
// error, because the pod is not pending for lack of devices. Pods with allocated claims are kept, since the driver may
// still refuse the claims.
func (m *model) addExtendedClaims(classes []*resourceapi.DeviceClass, nodes []*corev1.Node) error {
	var trials []trial
	for _, t := range m.trials {
		if t.pod != nil && t.pod.Status.ExtendedResourceClaimStatus == nil { // otherwise, it already has its devices
			if claim := extendedClaim(t.pod, classes); claim != nil {
				t.claims = append(t.claims, claim)
				t.remarks = append(t.remarks, ofDevicePlugins(t.pod, classes, nodes)...)
			}
		}
		if len(t.claims) > 0 || len(t.missing) > 0 {
			trials = append(trials, t)
		} else if t.named {
			return fmt.Errorf("cannot simulate pod %s: it references no claim and requests no extended resource of a "+
				"DeviceClass; \"kubectl describe pod %s -n %s\" shows what it waits for", fullName(t.pod), t.pod.Name,
				namespaceOf(t.pod))
		}
	}
	m.trials = trials
	return nil
}

// extendedClaim returns the claim for all of a pod's extended resources, or nil if no class defines any of them.
// Requests are sorted by name, as in kube-scheduler, because the allocator processes them in order.
func extendedClaim(pod *corev1.Pod, classes []*resourceapi.DeviceClass) *resourceapi.ResourceClaim {
	containers := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	byResource := classesByResource(containers, classes)
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOf(pod),
		Name:        pod.Name + "-extended-resources",
		Annotations: map[string]string{resourceapi.ExtendedResourceClaimAnnotation: "true"}}}
	claim.UID = types.UID(fullName(claim))
	for _, resource := range slices.Sorted(maps.Keys(byResource)) {
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests,
			requestsFor(resource, byResource[resource], containers, len(pod.Spec.InitContainers))...)
	}
	if len(claim.Spec.Devices.Requests) == 0 {
		return nil
	}
	slices.SortFunc(claim.Spec.Devices.Requests, func(a, b resourceapi.DeviceRequest) int {
		return strings.Compare(a.Name, b.Name)
	})
	return claim
}

func classesByResource(
	containers []corev1.Container, classes []*resourceapi.DeviceClass,
) map[corev1.ResourceName]string {
	byResource := map[corev1.ResourceName]string{}
	for i := range containers {
		for name, count := range wants(&containers[i]) {
			if class := classOf(name, classes); class != "" && count > 0 {
				byResource[name] = class
			}
		}
	}
	return byResource
}

// ofDevicePlugins returns remarks about nodes where the pod would get its resource from a device plugin instead of a
// class. On these nodes, kube-scheduler counts the plugin's free devices, whose number the simulation does not know.
func ofDevicePlugins(pod *corev1.Pod, classes []*resourceapi.DeviceClass, nodes []*corev1.Node) []string {
	var remarks []string
	byResource := classesByResource(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), classes)
	for _, resource := range slices.Sorted(maps.Keys(byResource)) {
		var names []string
		for _, node := range nodes {
			if offered := node.Status.Allocatable[resource]; !offered.IsZero() {
				names = append(names, node.Name)
			}
		}
		if len(names) > 0 {
			remarks = append(remarks, fmt.Sprintf("a device plugin offers %s on %s: there pod %s gets devices of the "+
				"plugin, regardless of the result for DeviceClass %s", resource,
				strings.Join(names, ", "), fullName(pod), byResource[resource]))
		}
	}
	return remarks
}

// requestsFor returns the requests for one resource. Each long-running container gets its own devices. Init containers
// that terminate use the devices of later containers. If those are too few, one additional request covers the largest
// deficit.
//
// It follows createRequestsAndMappings in kube-scheduler (pkg/scheduler/framework/plugins/dynamicresources). It visits
// containers from last to first, so that it knows the devices of later containers when it reaches an init container.
func requestsFor(
	resource corev1.ResourceName, class string, containers []corev1.Container, initContainers int,
) []resourceapi.DeviceRequest {
	var requests []resourceapi.DeviceRequest
	var extra *resourceapi.DeviceRequest
	later := int64(0)
	for i, container := range slices.Backward(containers) {
		list := wants(&containers[i])
		count := list[resource]
		request := resourceapi.DeviceRequest{
			Name: fmt.Sprintf("container-%d-request-%d", i, slices.Index(slices.Sorted(maps.Keys(list)), resource)),
			Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class, Count: count,
				AllocationMode: resourceapi.DeviceAllocationModeExactCount},
		}
		ends := i < initContainers &&
			ptr.Deref(container.RestartPolicy, "") != corev1.ContainerRestartPolicyAlways
		switch {
		case count == 0:
		case !ends:
			later += count
			requests = append(requests, request)
		case count > later && (extra == nil || count-later >= extra.Exactly.Count):
			request.Exactly.Count -= later
			extra = &request
		}
	}
	if extra != nil {
		requests = append(requests, *extra)
	}
	return requests
}

// wants returns the resource requests of a container. For a resource without a request, it uses the limit, as the API
// server does.
func wants(container *corev1.Container) map[corev1.ResourceName]int64 {
	counts := map[corev1.ResourceName]int64{}
	for _, list := range []corev1.ResourceList{container.Resources.Limits, container.Resources.Requests} {
		for name, quantity := range list {
			counts[name] = quantity.Value()
		}
	}
	return counts
}

// classOf returns the DeviceClass for an extended resource, or "" for other resources. A resource matches the implicit
// resource name of a class, even if the class does not exist, or a class's spec.extendedResourceName. If several
// classes match, the newest takes precedence.
func classOf(resource corev1.ResourceName, classes []*resourceapi.DeviceClass) string {
	if name, implicit := strings.CutPrefix(string(resource), resourceapi.ResourceDeviceClassPrefix); implicit {
		return name
	}
	var last *resourceapi.DeviceClass
	for _, class := range classes {
		if ptr.Deref(class.Spec.ExtendedResourceName, "") != string(resource) {
			continue
		}
		if last == nil || last.CreationTimestamp.Before(&class.CreationTimestamp) ||
			last.CreationTimestamp.Equal(&class.CreationTimestamp) && class.Name < last.Name {
			last = class
		}
	}
	if last == nil {
		return ""
	}
	return last.Name
}
