package simulate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	resourcev1client "k8s.io/client-go/kubernetes/typed/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/remote"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// liveCluster provides read-only access to a cluster.
type liveCluster struct {
	core     corev1client.CoreV1Interface
	resource resourcev1client.ResourceV1Interface
	// namespace applies to objects that do not specify one.
	namespace string
}

// connect connects to the cluster that the flags select. It returns nil if they select none.
func (f *Options) connect() (*liveCluster, error) {
	if !f.Cluster && len(f.Pods) == 0 {
		if f.Kubeconfig != "" || f.Context != "" {
			return nil, errors.New("cannot use --kubeconfig and --context: they select a cluster, but none is " +
				"queried; add --cluster, or a pod with --pod")
		}
		return nil, nil
	}
	cluster, err := remote.Connect(remote.Access{Kubeconfig: f.Kubeconfig, Context: f.Context, Namespace: f.Namespace})
	if err != nil {
		return nil, err
	}
	return &liveCluster{core: cluster.Core, resource: cluster.Resource, namespace: cluster.Namespace}, nil
}

// namespaceFor returns the namespace for manifests and pods without one. If there is a cluster, this is the namespace
// of the kubeconfig context, as in kubectl.
func (f *Options) namespaceFor(live *liveCluster) string {
	if live != nil {
		return live.namespace
	}
	return cmp.Or(f.Namespace, metav1.NamespaceDefault)
}

// addTo adds the cluster's objects to the objects from the files. Classes from files come first and override classes
// with the same name, because the lister returns the first match. Nodes are sorted to make the output deterministic.
func (l *liveCluster) addTo(ctx context.Context, cluster *Cluster) error {
	nodes, err := l.core.Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return cannotList("nodes", err)
	}
	published, err := l.resource.ResourceSlices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return cannotList("ResourceSlices", err)
	}
	made, err := l.resource.DeviceClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return cannotList("DeviceClasses", err)
	}
	claims, err := l.resource.ResourceClaims(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return cannotList("ResourceClaims", err)
	}
	cluster.Nodes = append(cluster.Nodes, pointers(nodes.Items)...)
	slices.SortFunc(cluster.Nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	cluster.Slices = append(cluster.Slices, pointers(published.Items)...)
	cluster.Classes = append(cluster.Classes, pointers(made.Items)...)
	for i := range claims.Items {
		if claims.Items[i].Status.Allocation != nil {
			cluster.Claims = append(cluster.Claims, &claims.Items[i])
		}
	}
	return nil
}

// pointers returns pointers to the elements of a list.
func pointers[T any](list []T) []*T {
	all := make([]*T, len(list))
	for i := range list {
		all[i] = &list[i]
	}
	return all
}

// cannotList returns an error, which names the ClusterRole to request if a permission is missing.
func cannotList(what string, err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("cannot list the %s: %w; ask for the ClusterRole dra-network-capacity, for the whole "+
			"cluster, or give files (-f) and --machines", what, err)
	}
	return fmt.Errorf("cannot list the %s: %w", what, err)
}

// addDriverObjects adds the objects that the driver's checks need: the cluster's topologies unless a file overrides
// them, the namespaces of the claims, and for each claim that is reserved for several pods, the pod that uses it. The
// caller may lack permission to read them. remarks lists the checks that were skipped for that reason.
func (l *liveCluster) addDriverObjects(ctx context.Context, m *model) (remarks []string) {
	topologies, err := l.topologies(ctx)
	if err != nil {
		remarks = append(remarks, fmt.Sprintf("cannot list the NetworkTopologies: %v; their restrictions are not "+
			"checked; ask for the ClusterRole dra-network-view", err))
	}
	for i := range topologies {
		ofFile := func(t *v1alpha1.NetworkTopology) bool { return t.Name == topologies[i].Name }
		if !slices.ContainsFunc(m.topologies, ofFile) {
			m.live = append(m.live, &topologies[i])
		}
	}
	known := map[string]bool{}
	for _, namespace := range m.namespaces {
		known[namespace.Name] = true
	}
	for _, t := range m.trials {
		name := t.namespace()
		if known[name] {
			continue
		}
		known[name] = true
		namespace, err := l.core.Namespaces().Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil:
			m.namespaces = append(m.namespaces, namespace)
		case !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err):
			remarks = append(remarks, fmt.Sprintf("cannot get namespace %s: %v; its labels are unknown", name, err))
		}
	}
	return append(remarks, l.addStarted(ctx, m)...)
}

// addStarted records which pod has started if a claim is reserved for several pods. If a pod cannot be read, addStarted
// assumes the first in the list, which kube-scheduler reserved the claim for first.
func (l *liveCluster) addStarted(ctx context.Context, m *model) (remarks []string) {
	for i := range m.trials {
		for _, claim := range m.trials[i].claims {
			consumers := podsOf(claim)
			if _, done := m.started[claim.UID]; done || len(consumers) < 2 || m.trials[i].hasStarted() {
				continue
			}
			m.started[claim.UID] = ""
			for _, consumer := range consumers {
				pod, err := l.core.Pods(claim.Namespace).Get(ctx, consumer.Name, metav1.GetOptions{})
				if err != nil && !apierrors.IsNotFound(err) {
					remarks = append(remarks, fmt.Sprintf("cannot determine which pod uses claim %s: cannot get pod "+
						"%s/%s: %v; assuming the first pod in its status.reservedFor", fullName(claim), claim.Namespace,
						consumer.Name, err))
					m.started[claim.UID] = claim.Namespace + "/" + consumers[0].Name
				} else if err == nil && pod.UID == consumer.UID && hasStarted(pod) {
					m.started[claim.UID] = fullName(pod)
				}
				if m.started[claim.UID] != "" {
					break
				}
			}
		}
	}
	return remarks
}

func (l *liveCluster) get(ctx context.Context, path string) ([]byte, error) {
	return remote.GetRaw(ctx, l.core.RESTClient(), path)
}

// topologies returns the topologies in the cluster; none if the kind is not installed.
func (l *liveCluster) topologies(ctx context.Context) ([]v1alpha1.NetworkTopology, error) {
	data, err := l.get(ctx, "/apis/"+v1alpha1.GroupVersion().String()+
		"/networktopologies")
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	var list v1alpha1.NetworkTopologyList
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	return list.Items, err
}

// podTrials returns a trial with the claims for each pod. Allocated claims keep their devices and thus determine the
// node.
func (l *liveCluster) podTrials(ctx context.Context, names []string) ([]trial, error) {
	var trials []trial
	for _, name := range names {
		namespace, short, qualified := strings.Cut(name, "/")
		if !qualified {
			namespace, short = l.namespace, name
		}
		pod, err := l.core.Pods(namespace).Get(ctx, short, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("cannot get pod %s/%s: %w", namespace, short, err)
		}
		made := trial{title: podTitle + fullName(pod), pod: pod, named: true}
		if made.missing, err = l.missingTemplates(ctx, pod); err == nil && len(made.missing) == 0 {
			made.claims, err = l.claimsOf(ctx, pod)
		}
		if err != nil {
			return nil, err
		}
		trials = append(trials, made)
	}
	return trials, nil
}

// missingTemplates returns a message for each missing ResourceClaimTemplate that a claim must be created from. The pod
// waits indefinitely for such a template. Without permission to read templates, missingTemplates returns nothing.
func (l *liveCluster) missingTemplates(ctx context.Context, pod *corev1.Pod) ([]string, error) {
	var missing []string
	for i := range pod.Spec.ResourceClaims {
		reference := &pod.Spec.ResourceClaims[i]
		template, _ := templateAndClaim(reference)
		if _, _, err := resourceclaim.Name(pod, reference); err == nil || template == "" {
			continue
		}
		_, err := l.resource.ResourceClaimTemplates(pod.Namespace).Get(ctx, template, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			missing = append(missing, fmt.Sprintf("it names the ResourceClaimTemplate %s, which is not in namespace "+
				"%s: apply it; if it was rejected, \"kubectl apply\" shows the reason", template, pod.Namespace))
		case err != nil && !apierrors.IsForbidden(err):
			return nil, fmt.Errorf("cannot get ResourceClaimTemplate %s/%s: %w", pod.Namespace, template, err)
		}
	}
	return missing, nil
}

// claimsOf returns the claims of a pod, including the claim for its extended resources if kube-scheduler has created
// it.
func (l *liveCluster) claimsOf(ctx context.Context, pod *corev1.Pod) ([]*resourceapi.ResourceClaim, error) {
	var names []string
	for i := range pod.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil, fmt.Errorf("the claims of pod %s do not exist yet: %w; retry in a moment", fullName(pod),
				err)
		}
		if name != nil {
			names = append(names, *name)
		}
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil {
		names = append(names, extended.ResourceClaimName)
	}
	var claims []*resourceapi.ResourceClaim
	for _, name := range names {
		claim, err := l.resource.ResourceClaims(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("cannot get claim %s/%s: %w", pod.Namespace, name, err)
		}
		claims = append(claims, claim)
	}
	return claims, nil
}
