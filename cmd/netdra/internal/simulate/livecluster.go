package simulate

import (
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

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/remote"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// liveCluster provides read-only access to a cluster.
type liveCluster struct{ *remote.Cluster }

// connect connects to the cluster selected by the flags, or returns nil if they do not select one.
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
	return &liveCluster{cluster}, nil
}

// Read adds the objects in a cluster. Classes from files come first and override cluster classes with the same name,
// because the lister returns the first match. Nodes are sorted for deterministic output.
func (c *Cluster) Read(ctx context.Context, source *remote.Cluster) error {
	nodes, nodesErr := source.Core.Nodes().List(ctx, metav1.ListOptions{})
	published, slicesErr := source.Resource.ResourceSlices().List(ctx, metav1.ListOptions{})
	made, classesErr := source.Resource.DeviceClasses().List(ctx, metav1.ListOptions{})
	claims, claimsErr := source.Resource.ResourceClaims(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err := errors.Join(cannotList("nodes", nodesErr), cannotList("ResourceSlices", slicesErr),
		cannotList("DeviceClasses", classesErr), cannotList("ResourceClaims", claimsErr)); err != nil {
		return err
	}
	c.Nodes = append(c.Nodes, pointers(nodes.Items)...)
	slices.SortFunc(c.Nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	c.Slices = append(c.Slices, pointers(published.Items)...)
	c.Classes = append(c.Classes, pointers(made.Items)...)
	c.Claims = append(c.Claims, slices.DeleteFunc(pointers(claims.Items),
		func(claim *resourceapi.ResourceClaim) bool { return claim.Status.Allocation == nil })...)
	return nil
}

func pointers[T any](list []T) []*T {
	all := make([]*T, len(list))
	for i := range list {
		all[i] = &list[i]
	}
	return all
}

// cannotList wraps an error, if any, and names the objects that could not be listed. If the caller lacks permission,
// the error names the ClusterRole to request.
func cannotList(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("cannot list the %s: %w; request the ClusterRole dra-network-capacity, for the whole cluster",
			what, err)
	}
	return fmt.Errorf("cannot list the %s: %w", what, err)
}

// addDriverObjects adds the objects required by the driver's checks: the cluster's topologies unless overridden by a
// file, the claims' namespaces, and, for each claim reserved for several pods, the pod that uses it. The caller may
// lack permission to read these objects; remarks lists the checks that are skipped for this reason.
func (l *liveCluster) addDriverObjects(ctx context.Context, m *model) (remarks []string) {
	topologies, err := l.Topologies(ctx)
	if err != nil && !apierrors.IsNotFound(err) { // if it is not found, the kind is not installed
		remarks = append(remarks, fmt.Sprintf("cannot list the NetworkTopologies: %v; their restrictions are not "+
			"checked; request the ClusterRole dra-network-view", err))
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
		namespace, err := l.Core.Namespaces().Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil:
			m.namespaces = append(m.namespaces, namespace)
		case !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err):
			remarks = append(remarks, fmt.Sprintf("cannot get namespace %s: %v; its labels are unknown", name, err))
		}
	}
	return append(remarks, l.addStarted(ctx, m)...)
}

// addStarted records, for each claim reserved for several pods, which of these pods has started. If a pod cannot be
// read, addStarted assumes that the first pod in the list has started, because kube-scheduler reserved the claim for
// that pod first.
func (l *liveCluster) addStarted(ctx context.Context, m *model) (remarks []string) {
	for i := range m.trials {
		for _, claim := range m.trials[i].claims {
			consumers := podsOf(claim)
			if _, done := m.started[claim.UID]; done || len(consumers) < 2 || m.trials[i].hasStarted() {
				continue
			}
			m.started[claim.UID] = ""
			for _, consumer := range consumers {
				pod, err := l.Core.Pods(claim.Namespace).Get(ctx, consumer.Name, metav1.GetOptions{})
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

// addPods adds the named pods, and the claims and templates that pods reference but that are not in any file. It gets
// each object by name, because users who can create pods in a namespace often lack permission to list claims. If a
// claim or template does not exist, the pod's answer reports this.
func (l *liveCluster) addPods(ctx context.Context, m *model, names []string) error {
	m.clusterAsked = true
	for _, name := range names {
		namespace, short, qualified := strings.Cut(name, "/")
		if !qualified {
			namespace, short = l.Namespace, name
		}
		pod, err := l.Core.Pods(namespace).Get(ctx, short, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("cannot get pod %s/%s: %w", namespace, short, err)
		}
		m.order, m.chosen = append(m.order, pod), append(m.chosen, pod)
	}
	for _, pod := range m.pods() {
		for _, r := range m.references(pod) {
			var err error
			switch {
			case r.template != "" && find[*resourceapi.ResourceClaimTemplate](m, pod, r.template) == nil:
				var got *resourceapi.ResourceClaimTemplate
				got, err = l.Resource.ResourceClaimTemplates(namespaceOf(pod)).Get(ctx, r.template, metav1.GetOptions{})
				if err == nil {
					m.named = append(m.named, got)
				}
			case r.claim != "" && m.claim(pod, r.claim) == nil:
				var got *resourceapi.ResourceClaim
				got, err = l.Resource.ResourceClaims(namespaceOf(pod)).Get(ctx, r.claim, metav1.GetOptions{})
				if err == nil {
					m.named = append(m.named, got)
				}
			}
			if err != nil && !apierrors.IsNotFound(err) {
				return cannotGetNamed(pod, r, err)
			}
		}
	}
	return nil
}

func cannotGetNamed(pod *corev1.Pod, r reference, err error) error {
	err = fmt.Errorf("cannot simulate pod %s: cannot get its %s: %w", fullName(pod), r, err)
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w; pass it with -f, or request the permission to get it", err)
	}
	return err
}

// TaintRules returns the DeviceTaintRules in a cluster (KEP-5055), sorted by name and without status. If the kind is
// not installed, it returns none. get reads a path from the API server.
//
// Kubernetes 1.36 serves the kind only as v1beta2, which is disabled by default but has the same specification.
func TaintRules(ctx context.Context, get func(ctx context.Context, path string) ([]byte, error),
) ([]resourceapi.DeviceTaintRule, error) {
	for _, version := range []string{"v1", "v1beta2"} {
		data, err := get(ctx, "/apis/"+resourceapi.GroupName+"/"+version+"/devicetaintrules")
		if apierrors.IsNotFound(err) {
			continue
		}
		var list struct {
			Items []resourceapi.DeviceTaintRule `json:"items"`
		}
		if err == nil {
			err = json.Unmarshal(data, &list)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot list the DeviceTaintRules: %w; devices that they take out of service count "+
				"as free; request the ClusterRole dra-network-capacity", err)
		}
		slices.SortFunc(list.Items, func(a, b resourceapi.DeviceTaintRule) int {
			return strings.Compare(a.Name, b.Name)
		})
		return list.Items, nil
	}
	return nil, nil
}

// withTaints adds the taints from rules to slices, as kube-scheduler does. It copies each slice that gets a taint. The
// equivalent package, resourceslice/tracker in k8s.io/dynamic-resource-allocation, requires informers.
func withTaints(published []*resourceapi.ResourceSlice, rules []resourceapi.DeviceTaintRule,
) []*resourceapi.ResourceSlice {
	tainted := slices.Clone(published)
	for i, original := range published {
		for j := range rules {
			selector := rules[j].Spec.DeviceSelector
			if selector == nil || !isOrAny(selector.Driver, original.Spec.Driver) ||
				!isOrAny(selector.Pool, original.Spec.Pool.Name) {
				continue
			}
			for k := range original.Spec.Devices {
				if !isOrAny(selector.Device, original.Spec.Devices[k].Name) {
					continue
				}
				if tainted[i] == original {
					tainted[i] = original.DeepCopy()
				}
				device := &tainted[i].Spec.Devices[k]
				device.Taints = append(device.Taints, rules[j].Spec.Taint)
			}
		}
	}
	return tainted
}

func isOrAny(wanted *string, name string) bool { return wanted == nil || *wanted == name }
