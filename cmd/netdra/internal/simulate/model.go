package simulate

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// model contains the objects from the files and the cluster objects that they depend on. It contains only topologies
// that the controller would accept, and its claims have the API server's defaults.
type model struct {
	namespace  string // for objects that do not specify one
	policies   []policyapi.DeviceExposurePolicy
	topologies []*v1alpha1.NetworkTopology
	// live lists topologies that exist in the cluster but not in the files. Their classes are read from the cluster.
	live       []*v1alpha1.NetworkTopology
	schemas    cnichain.Schemas
	namespaces []*corev1.Namespace
	classes    []*resourceapi.DeviceClass
	slices     []*resourceapi.ResourceSlice
	taintRules []resourceapi.DeviceTaintRule
	allocated  []*resourceapi.ResourceClaim
	// order contains the pods, templates and unallocated claims in file order.
	order []metav1.Object
	// named lists claims and templates in a cluster that are referenced by pods in the files.
	named []metav1.Object
	// clusterAsked is true if the objects referenced by pods were looked up in a cluster. chosen lists the pods that
	// the user specified with --pod.
	clusterAsked bool
	chosen       []*corev1.Pod
	// definitions maps the namespace/name of each NetworkAttachmentDefinition to its configuration.
	definitions map[string]string
	workloads   []*workload
	// makers maps each pod that was created from a workload to the workload.
	makers map[*corev1.Pod]*workload
	// remarks explain why objects are not simulated.
	remarks []string
	trials  []trial
	// users maps a claim's UID to the first pod that uses the claim.
	users map[types.UID]string
	// started maps the UID of each claim that is reserved for several pods to the pod that has started, or to "" if
	// none of them has.
	started map[types.UID]string
}

// trial is a set of claims that must fit together on one node. All claims of a pod form one trial, because
// kube-scheduler either allocates all of them on one node or none.
type trial struct {
	title string
	// pod is the pod that uses the claims; nil for claims without a pod.
	pod *corev1.Pod
	// maker is the workload that creates the pod; nil for pods from a file or the cluster.
	maker  *workload
	claims []*resourceapi.ResourceClaim
	// named is true if the user specified the pod with --pod.
	named bool
	// missing describes objects that the pod references but that do not exist. Without them, the pod cannot run on any
	// node.
	missing []string
	// remarks are shown regardless of the result.
	remarks []string
}

// podTitle is the prefix in the titles of trials for pods.
const podTitle = "pod "

func (t *trial) namespace() string {
	if t.pod != nil {
		return namespaceOf(t.pod)
	}
	return namespaceOf(t.claims[0])
}

// arrangeTrials creates a trial for every pod and for every claim that no pod references. Templates only get a trial if
// the model has no pods; otherwise, an unused template would take up devices for a claim that does not exist.
// arrangeTrials returns an error for claims that the API server would reject.
func (m *model) arrangeTrials() error {
	ofPods := map[metav1.Object]bool{}
	byPod := map[metav1.Object]trial{}
	for _, pod := range m.pods() {
		t := trial{title: podTitle + fullName(pod), pod: pod, maker: m.makers[pod],
			named: slices.Contains(m.chosen, pod)}
		for _, r := range m.references(pod) {
			claim, source := m.claimOf(pod, r)
			if claim == nil {
				t.missing = append(t.missing, m.missingNamed(pod, r))
				continue
			}
			ofPods[source] = true
			t.claims = append(t.claims, claim)
		}
		byPod[pod] = t
	}
	for _, object := range m.order {
		switch o := object.(type) {
		case *corev1.Pod:
			m.trials = append(m.trials, byPod[o]) // the pod may request extended resources instead of claims
		case *resourceapi.ResourceClaim:
			if !ofPods[o] {
				m.trials = append(m.trials, trial{title: "claim " + fullName(o), claims: []*resourceapi.ResourceClaim{o}})
			}
		case *resourceapi.ResourceClaimTemplate:
			if len(byPod) == 0 {
				m.trials = append(m.trials, trial{title: "a claim of template " + fullName(o),
					claims: []*resourceapi.ResourceClaim{fromTemplate(o, o.Name)}})
			}
		}
	}
	seen := map[*resourceapi.ResourceClaim]bool{}
	for _, t := range m.trials {
		for _, claim := range t.claims {
			if seen[claim] || slices.Contains(m.named, metav1.Object(claim)) {
				continue // several pods share the claim, or it comes from an API server and already has a UID
			}
			seen[claim] = true
			claim.Namespace = namespaceOf(claim)
			// The allocator identifies claims by UID. Names are not unique: a template may have the same name as a
			// claim, and objects with generateName have no name.
			claim.UID = types.UID(fmt.Sprintf("%s#%d", fullName(claim), len(seen)))
			if claim.Status.Allocation != nil {
				continue // the claim came from an API server
			}
			if err := Complete(claim); err != nil {
				return fmt.Errorf("%s: claim %s: %w", t.title, claim.Name, err)
			}
		}
	}
	return nil
}

// pods returns the pods in the files, the pods created by workloads in the files, and the chosen pods.
func (m *model) pods() (pods []*corev1.Pod) {
	for _, object := range m.order {
		if pod, isPod := object.(*corev1.Pod); isPod {
			pods = append(pods, pod)
		}
	}
	return pods
}

func find[T metav1.Object](m *model, pod *corev1.Pod, name string) (found T) {
	for _, objects := range [][]metav1.Object{m.order, m.named} {
		for _, object := range objects {
			if typed, matches := object.(T); matches && object.GetName() == name && namespaceOf(object) == namespaceOf(pod) {
				return typed
			}
		}
	}
	return found
}

func (m *model) claim(pod *corev1.Pod, name string) *resourceapi.ResourceClaim {
	for _, claim := range m.allocated {
		if claim.Name == name && namespaceOf(claim) == namespaceOf(pod) {
			return claim
		}
	}
	return find[*resourceapi.ResourceClaim](m, pod, name)
}

// reference is a pod's reference to a claim, which is either an existing claim or created from a template. entry is the
// claim's name in the pod.
type reference struct{ entry, template, claim string }

// String returns the kind and name of the referenced object.
func (r reference) String() string {
	if r.template != "" {
		return "ResourceClaimTemplate " + r.template
	}
	return "ResourceClaim " + r.claim
}

// references returns the claims that a pod needs. For a chosen pod, these include claims that already exist in the
// cluster because they were created from templates or for extended resources.
func (m *model) references(pod *corev1.Pod) []reference {
	var all []reference
	chosen := slices.Contains(m.chosen, pod)
	for i := range pod.Spec.ResourceClaims {
		entry := &pod.Spec.ResourceClaims[i]
		r := reference{entry: entry.Name, template: ptr.Deref(entry.ResourceClaimTemplateName, ""),
			claim: ptr.Deref(entry.ResourceClaimName, "")}
		if name, _, err := resourceclaim.Name(pod, entry); chosen && err == nil && name != nil {
			r.template, r.claim = "", *name
		}
		all = append(all, r)
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; chosen && extended != nil {
		all = append(all, reference{claim: extended.ResourceClaimName})
	}
	return all
}

// claimOf returns a claim that a pod needs, and creates it from a template if necessary. It returns nil if the claim or
// template does not exist. source is the claim or template itself. Templates that are the source of a claim do not get
// a trial of their own.
func (m *model) claimOf(pod *corev1.Pod, r reference) (claim *resourceapi.ResourceClaim, source metav1.Object) {
	if r.template == "" {
		claim = m.claim(pod, r.claim)
		return claim, claim
	}
	template := find[*resourceapi.ResourceClaimTemplate](m, pod, r.template)
	if template == nil {
		return nil, nil
	}
	return fromTemplate(template, pod.Name+"-"+r.entry), template
}

// missingNamed describes a claim or template that a pod references but that does not exist, and suggests a fix.
func (m *model) missingNamed(pod *corev1.Pod, r reference) string {
	switch {
	case r.template == "" && r.claim == "":
		return fmt.Sprintf("its entry %s in resourceClaims names no claim; set a resourceClaimName or a "+
			"resourceClaimTemplateName", r.entry)
	case m.clusterAsked:
		return fmt.Sprintf("it names the %s, which is neither in the files nor in namespace %s of the cluster; "+
			"pass it with -f, or apply it", r, namespaceOf(pod))
	}
	return fmt.Sprintf("it names the %s, which is not in the files; add it with -f, or look it up with "+
		"--cluster", r)
}

func fromTemplate(template *resourceapi.ResourceClaimTemplate, name string) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: template.Namespace, Name: name},
		Spec: *template.Spec.Spec.DeepCopy()}
}

func namespaceOf(o metav1.Object) string { return cmp.Or(o.GetNamespace(), metav1.NamespaceDefault) }

func fullName(o metav1.Object) string { return namespaceOf(o) + "/" + o.GetName() }
