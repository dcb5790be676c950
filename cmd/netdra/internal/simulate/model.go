package simulate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// model is valid: topologies that the controller would accept, and claims as the API server would complete them.
type model struct {
	policies   []policyapi.DeviceExposurePolicy
	topologies []*v1alpha1.NetworkTopology
	// unread says that the topologies of the cluster could not be read.
	unread bool
	// live are topologies that a cluster has beside those of the files. Their classes are the cluster's.
	live []*v1alpha1.NetworkTopology
	// ranges are the names of AddressRanges: of the files, and, if it could be asked, of the cluster too. What is in
	// neither is known to be missing only then.
	ranges         []string
	rangesComplete bool
	schemas        cnichain.Schemas
	namespaces     []*corev1.Namespace
	// definitions are the configurations in NetworkAttachmentDefinitions, by namespace/name.
	definitions map[string]string
	trials      []trial
	// users are the pods that use claims, the first of each, by the UID of the claim.
	users map[types.UID]string
	// started are the pods that have started, of claims that are reserved for several, by the UID of the claim; empty
	// where none has.
	started map[types.UID]string
	// takers are the trials that got devices, by the UIDs of their claims.
	takers map[types.UID]*trial
}

// trial is a set of claims that must fit together on one node. A pod with several claims is one trial: kube-scheduler
// allocates all of them on one node or none.
type trial struct {
	title string
	// pod is the one that the claims are for; nil for claims without a pod.
	pod *corev1.Pod
	// maker is the workload that the pod is of; nil for one of a file or of the cluster.
	maker  *workload
	claims []*resourceapi.ResourceClaim
	// named is true for a pod that the user has asked about.
	named bool
	// missing says what its pod names that is nowhere. It waits for that on every node.
	missing []string
	// remarks are what to know of the trial whatever comes of it.
	remarks []string
}

// podTitle begins the titles of pods.
const podTitle = "pod "

// namespace is that of the claims, and of their pod.
func (t *trial) namespace() string {
	if t.pod != nil {
		return namespaceOf(t.pod)
	}
	return namespaceOf(t.claims[0])
}

// validate refuses what the controller would refuse. The model has no trials yet: a cluster may have claims that the
// pods of the files name.
func (w *input) validate() (*model, error) {
	m := &model{policies: w.policies, ranges: w.ranges, schemas: w.schemas, namespaces: w.namespaces,
		definitions: w.definitions, users: map[types.UID]string{},
		started: map[types.UID]string{}, takers: map[types.UID]*trial{}}
	for i := range w.topologyDocuments {
		topology, problems := manifest.ReadTopology(&w.topologyDocuments[i], w.schemas)
		if len(problems) > 0 {
			return nil, fmt.Errorf("a topology is not valid, so it would get no DeviceClass:\n  %s",
				strings.Join(problems, "\n  "))
		}
		m.topologies = append(m.topologies, topology)
	}
	return m, nil
}

// pluginNames are the names of CNI plugins by their attributes. Of several names with one attribute that of a topology
// is taken, since its author knows it.
func (m *model) pluginNames() map[string]string {
	names := map[string]string{}
	add := func(name string) {
		if attribute := policyapi.CNIAttribute(name); names[attribute] == "" {
			names[attribute] = name
		}
	}
	for _, topology := range slices.Concat(m.topologies, m.live) {
		for i := range topology.Spec.Steps {
			add(topology.Spec.Steps[i].Type)
		}
	}
	for i := range m.policies {
		if exposure := m.policies[i].Spec.Exposure; exposure != nil {
			for _, plugin := range exposure.SupportedCNIPlugins {
				add(plugin.Name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.schemas.All())) {
		add(name)
	}
	return names
}

// arrangeTrials makes the trials: every pod with its claims, and claims and templates that no pod names. It refuses
// what the API server would refuse.
func (w *input) arrangeTrials() ([]trial, error) {
	var trials []trial
	named := map[metav1.Object]bool{}
	byPod := map[metav1.Object]trial{}
	for _, pod := range w.pods {
		t := trial{title: podTitle + fullName(pod), pod: pod, maker: w.makers[pod]}
		for i := range pod.Spec.ResourceClaims {
			claim, source := w.claimOf(pod, &pod.Spec.ResourceClaims[i])
			if claim == nil {
				t.missing = append(t.missing, w.missingNamed(pod, &pod.Spec.ResourceClaims[i]))
				continue
			}
			named[source] = true
			t.claims = append(t.claims, claim)
		}
		byPod[pod] = t
	}
	for _, object := range w.order {
		switch o := object.(type) {
		case *corev1.Pod:
			trials = append(trials, byPod[o]) // it may have extended resources in place of claims
		case *resourceapi.ResourceClaim:
			if !named[o] {
				trials = append(trials, trial{title: "claim " + fullName(o), claims: []*resourceapi.ResourceClaim{o}})
			}
		case *resourceapi.ResourceClaimTemplate:
			if !named[o] {
				trials = append(trials, trial{title: "a claim of template " + fullName(o),
					claims: []*resourceapi.ResourceClaim{fromTemplate(o, o.Name)}})
			}
		}
	}
	seen := map[*resourceapi.ResourceClaim]bool{}
	for _, t := range trials {
		for _, claim := range t.claims {
			if seen[claim] {
				continue // pods share it
			}
			seen[claim] = true
			if slices.Contains(w.live, claim) {
				continue // complete, and among the cluster's claims under its own UID if it has devices
			}
			claim.Namespace = namespaceOf(claim)
			// The allocator tells claims apart by it. Names are not enough: a template may have that of a claim, and
			// those with generateName have none.
			claim.UID = types.UID(fmt.Sprintf("%s#%d", fullName(claim), len(seen)))
			if claim.Status.Allocation != nil {
				continue // it came from an API server
			}
			if err := Complete(claim); err != nil {
				return nil, fmt.Errorf("%s: claim %s: %w", t.title, claim.Name, err)
			}
		}
	}
	return trials, nil
}

// claimOf finds or makes a claim of a pod; nil if what the pod names is nowhere. It returns the object by which the
// claim is named as its source, so that a template is not tried on its own, too.
func (w *input) claimOf(
	pod *corev1.Pod, reference *corev1.PodResourceClaim,
) (claim *resourceapi.ResourceClaim, source metav1.Object) {
	templateName, claimName := templateAndClaim(reference)
	if templateName == "" {
		claim = w.claim(pod, claimName)
		return claim, claim
	}
	template := w.template(pod, templateName)
	if template == nil {
		return nil, nil
	}
	return fromTemplate(template, pod.Name+"-"+reference.Name), template
}

// missingNamed says that what a pod names is nowhere, and what to do.
func (w *input) missingNamed(pod *corev1.Pod, reference *corev1.PodResourceClaim) string {
	template, claim := templateAndClaim(reference)
	kind, name := "ResourceClaimTemplate", template
	if template == "" {
		kind, name = "ResourceClaim", claim
	}
	switch {
	case name == "":
		return fmt.Sprintf("its entry %s in resourceClaims names no claim; give it a resourceClaimName or a "+
			"resourceClaimTemplateName", reference.Name)
	case w.clusterAsked:
		return fmt.Sprintf("it names the %s %s, which is neither in the files nor in namespace %s of the cluster; "+
			"give it with -f", kind, name, namespaceOf(pod))
	}
	return fmt.Sprintf("it names the %s %s, which is in none of the files; give it with -f, or have it looked up with "+
		"--cluster", kind, name)
}

func fromTemplate(template *resourceapi.ResourceClaimTemplate, name string) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: template.Namespace, Name: name},
		Spec: *template.Spec.Spec.DeepCopy()}
}

func namespaceOf(o metav1.Object) string { return cmp.Or(o.GetNamespace(), metav1.NamespaceDefault) }

func fullName(o metav1.Object) string { return namespaceOf(o) + "/" + o.GetName() }
