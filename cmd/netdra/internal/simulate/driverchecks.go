package simulate

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// The scheduler allocates whatever devices a claim requests, but the driver may still refuse the claim.

// addDriverChecks adds the errors that the driver would return for a trial's claims with the allocated devices. Claims
// that do not fit have no devices, so it only adds remarks about namespaces that their topologies do not allow. For a
// pod that has started, only the problems reported by its node matter.
func (t *Answer) addDriverChecks(
	m *model, trial *trial, results []resourceapi.AllocationResult, classes []*resourceapi.DeviceClass,
) {
	if t.started = t.Allocated && hasStarted(trial.pod); t.Fits && !t.started {
		t.Refused = m.exclusiveProblems(trial, results)
	}
	var plans []cnichain.Plan
	for i, claim := range trial.claims {
		if t.started {
			break
		}
		problems, certain := m.namespaceProblems(claim)
		if !t.Fits || !certain {
			t.addRemarks(problems)
		}
		if !t.Fits {
			continue
		}
		if certain {
			t.Refused = append(t.Refused, problems...)
		}
		allocated := claim.DeepCopy()
		allocated.Status.Allocation = &results[i]
		found := m.refusals(allocated, trial.pod, classes)
		t.Refused, plans = append(t.Refused, found.refused...), append(plans, found.plans...)
		t.addRemarks(found.remarks)
	}
	if err := checkInterfaces(trial.pod, plans); err != nil && len(t.Refused) == 0 {
		t.Refused = []string{err.Error()}
	}
	if t.Allocated && len(t.Refused) == 0 {
		t.Refused = attachProblems(trial.claims)
	}
	t.Fits = t.Fits && len(t.Refused) == 0
}

// exclusiveProblems returns an error for each claim that has exclusive devices and is in use by another pod.
func (m *model) exclusiveProblems(trial *trial, results []resourceapi.AllocationResult) []string {
	var problems []string
	for i, claim := range trial.claims {
		user := m.userOf(claim)
		if trial.pod != nil && user != "" && user != fullName(trial.pod) && claimspec.HasExclusive(&results[i]) {
			problems = append(problems, (&claimspec.InUseError{Claim: fullName(claim), Pod: user}).Error())
		}
	}
	return problems
}

// userOf returns the pod that uses a claim: the only pod for which kube-scheduler reserved the claim, the started pod
// if the claim is reserved for several, or a pod from an earlier trial. If the claim is reserved for several pods and
// none of them has started, userOf returns "", because the first pod to start will get the device.
func (m *model) userOf(claim *resourceapi.ResourceClaim) string {
	if user, several := m.started[claim.UID]; several {
		return user
	}
	for _, consumer := range podsOf(claim) {
		return namespaceOf(claim) + "/" + consumer.Name
	}
	return m.users[claim.UID]
}

// podsOf returns the pods for which kube-scheduler reserved a claim, even if only one of them can attach the devices.
func podsOf(claim *resourceapi.ResourceClaim) []resourceapi.ResourceClaimConsumerReference {
	return slices.DeleteFunc(slices.Clone(claim.Status.ReservedFor),
		func(consumer resourceapi.ResourceClaimConsumerReference) bool {
			return consumer.APIGroup != "" || consumer.Resource != "pods"
		})
}

// use records the pod of a successful trial as the user of the trial's claims.
func (m *model) use(trial *trial) {
	for _, claim := range trial.claims {
		if trial.pod != nil && m.users[claim.UID] == "" {
			m.users[claim.UID] = fullName(trial.pod)
		}
	}
}

// checkInterfaces returns an error if two claims of a pod request the same interface name.
func checkInterfaces(pod *corev1.Pod, plans []cnichain.Plan) error {
	if pod == nil || len(plans) == 0 {
		return nil
	}
	attachment := executor.NewAttachment("", executor.Pod{Namespace: namespaceOf(pod), Name: pod.Name,
		Annotations: pod.Annotations}, plans)
	return executor.AssignNames(attachment, nil)
}

// checked is the result of the driver's checks on a claim: errors, remarks about checks that were not possible, and
// plans as far as they can be computed without the node. It contains either plans or errors.
type checked struct {
	refused, remarks []string
	plans            []cnichain.Plan
}

// refusals runs the driver's checks on an allocated claim. pod is nil if the claim has no pod.
//
// It calls the same functions as the driver does in Prepare. If a topology is not in the files but has classes, only
// the claim's devices are checked, and a remark says so, because the topology may exist in the cluster.
func (m *model) refusals(
	claim *resourceapi.ResourceClaim, pod *corev1.Pod, classes []*resourceapi.DeviceClass,
) (found checked) {
	devices, err := claimspec.Devices(claim)
	if err == nil && len(devices) > 0 && pod != nil {
		err = claimspec.CheckPod(pod)
	}
	if err != nil {
		return checked{refused: []string{err.Error()}}
	}
	id := cnichain.Claim{Namespace: claim.Namespace, Name: claim.Name, UID: string(claim.UID)}
	for _, name := range claimspec.Topologies(devices) {
		topology := m.topology(name)
		isPartial := topology == nil
		if isPartial {
			topology = rootsOf(classes, name)
		}
		if len(topology.Spec.Steps) == 0 {
			found.refused = append(found.refused, claimspec.UnknownTopology(name).Error())
			continue
		}
		spec := claimspec.SpecOf(topology, id.String(), devices)
		lacking := spec.CheckDevices()
		if len(lacking) > 0 {
			found.remarks = append(found.remarks, limitsRemark(claim)...)
		}
		if isPartial {
			for _, problem := range lacking {
				found.refused = append(found.refused, fmt.Sprintf("NetworkTopology %s: %s", name, problem.ErrorBody()))
			}
			found.remarks = append(found.remarks, fmt.Sprintf("cannot check the rest of claim %s: NetworkTopology %s "+
				"is unknown; add it with -f", id, name))
			continue
		}
		for _, problem := range spec.Check() {
			found.refused = append(found.refused, fmt.Sprintf("NetworkTopology %s: %s", name, problem.Error()))
		}
		refused, unknown := m.networkProblems(topology, &spec, claim.Namespace, pod)
		found.refused, found.remarks = append(found.refused, refused...), append(found.remarks, unknown...)
		if len(found.refused) == 0 {
			found.plans = append(found.plans, cnichain.Outline(spec, id, m.schemas))
		}
	}
	return found
}

func rootsOf(classes []*resourceapi.DeviceClass, name string) *v1alpha1.NetworkTopology {
	topology := &v1alpha1.NetworkTopology{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, class := range classes {
		step := v1alpha1.Step{Name: class.Labels[v1alpha1.LabelStep]}
		isKnown := func(known v1alpha1.Step) bool { return known.Name == step.Name }
		if class.Labels[v1alpha1.LabelTopology] == name && !slices.ContainsFunc(topology.Spec.Steps, isKnown) {
			topology.Spec.Steps = append(topology.Spec.Steps, step)
		}
	}
	return topology
}

// limitsRemark explains how to request the devices if the pod requests extended resources instead of referencing a
// claim. The remark follows a refusal that refers to requests.
func limitsRemark(claim *resourceapi.ResourceClaim) []string {
	if _, extended := claim.Annotations[resourceapi.ExtendedResourceClaimAnnotation]; !extended {
		return nil
	}
	return []string{"kube-scheduler creates the claim from the pod's extended resources: instead of a request " +
		"with a deviceClassName, set the limit " + resourceapi.ResourceDeviceClassPrefix +
		"<deviceClassName> in the pod"}
}

// networkProblems checks topologies with plugins that only attach networks selected by pods. It reports missing
// NetworkAttachmentDefinitions and, if there is a pod, problems in the pod's annotation.
func (m *model) networkProblems(
	topology *v1alpha1.NetworkTopology, spec *claimspec.Spec, namespace string, pod *corev1.Pod,
) (refused, remarks []string) {
	complete := true
	for _, name := range cnichain.Definitions(topology, m.schemas, namespace) {
		if _, given := m.definitions[name]; !given {
			complete = false
			remarks = append(remarks, fmt.Sprintf("cannot check network %s of NetworkTopology %s: its "+
				"NetworkAttachmentDefinition is not in the files; add it with -f", name, topology.Name))
		}
	}
	if complete {
		_, problems := cnichain.Define(topology, m.schemas, namespace, m.definitions)
		for _, problem := range problems {
			refused = append(refused, fmt.Sprintf("NetworkTopology %s: %s", topology.Name, problem.Error()))
		}
	}
	if pod == nil {
		return refused, remarks
	}
	var wanted []cnichain.WantedNetwork
	for range spec.Instances() {
		wanted = append(wanted, cnichain.PodNetworks(topology, m.schemas, namespace)...)
	}
	if _, err := cnichain.SelectNetworks(wanted, pod.Annotations, namespace); err != nil {
		refused = append(refused, err.Error())
	}
	return refused, remarks
}

func (m *model) topology(name string) *v1alpha1.NetworkTopology {
	for _, topology := range slices.Concat(m.topologies, m.live) {
		if topology.Name == name {
			return topology
		}
	}
	return nil
}

// namespaceProblems returns errors for topologies that do not allow the claim's namespace. certain is true if the
// namespace's labels are known.
func (m *model) namespaceProblems(claim *resourceapi.ResourceClaim) (problems []string, certain bool) {
	known := labels.Set{corev1.LabelMetadataName: claim.Namespace}
	for _, namespace := range m.namespaces {
		if namespace.Name == claim.Namespace {
			known, certain = labels.Merge(namespace.Labels, known), true
		}
	}
	check := func(topology *v1alpha1.NetworkTopology, classes []string) {
		err := claimspec.CheckNamespace(topology, claim.Namespace, known)
		isRequested := func(name string) bool { return slices.Contains(classes, name) }
		if err == nil || !slices.ContainsFunc(classNames(claim), isRequested) {
			return
		}
		problem := err.Error()
		if !certain {
			problem += "; if the namespace has such labels, pass it with -f, too"
		}
		problems = append(problems, problem)
	}
	for _, topology := range m.topologies {
		check(topology, manifest.ClassNames(topology))
	}
	for _, topology := range m.live {
		check(topology, topology.Status.DeviceClasses) // classes with the default names may be for another topology
	}
	return problems, certain
}
