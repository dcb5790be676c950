package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	chainapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/internal/publish"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// resync is the period after which informers report all objects again, in case a handler missed an event.
const resync = 10 * time.Minute

type cluster struct {
	client     kubernetes.Interface
	nodeName   string
	policies   cache.SharedIndexInformer
	topologies cache.SharedIndexInformer
	schemas    cache.SharedIndexInformer
	node       cache.SharedIndexInformer
	namespaces cache.SharedIndexInformer
	pods       cache.SharedIndexInformer
	// blocks lists the node's AddressBlocks. The resource does not exist if the cluster's CRDs are older than the
	// driver, so nothing waits for this informer to sync.
	blocks cache.SharedIndexInformer
	// readDefinition reads a NetworkAttachmentDefinition, given as namespace/name, from the API server.
	readDefinition func(ctx context.Context, name string) ([]byte, error)
	// informers lists the informers that the driver requires: all except blocks.
	informers []cache.SharedIndexInformer
}

func newCluster(config *rest.Config, client kubernetes.Interface, nodeName string) (*cluster, error) {
	custom, err := customClient(config)
	if err != nil {
		return nil, err
	}
	core, all := client.CoreV1().RESTClient(), fields.Everything()
	onNode := fields.OneTermEqualSelector("spec.nodeName", nodeName)
	c := &cluster{
		client:     client,
		nodeName:   nodeName,
		policies:   informer(custom, "deviceexposurepolicies", &policyapi.DeviceExposurePolicy{}, all),
		topologies: informer(custom, "networktopologies", &chainapi.NetworkTopology{}, all),
		schemas:    informer(custom, "cnipluginschemas", &chainapi.CNIPluginSchema{}, all),
		node:       informer(core, "nodes", &corev1.Node{}, fields.OneTermEqualSelector("metadata.name", nodeName)),
		namespaces: informer(core, "namespaces", &corev1.Namespace{}, all),
		pods:       informer(core, "pods", &corev1.Pod{}, onNode),
		// Without this selector, most events in a cluster with thousands of nodes would be for blocks of other nodes.
		blocks: informer(custom, "addressblocks", &chainapi.AddressBlock{}, onNode),
	}
	// Strip the objects before they are stored, because pods can be arbitrarily large and the informer lists all
	// namespaces in the cluster. The informers stream their initial list object by object (WatchList).
	if err := errors.Join(c.pods.SetTransform(stripPod), c.namespaces.SetTransform(stripNamespace)); err != nil {
		return nil, err
	}
	c.readDefinition = c.getDefinition
	c.informers = []cache.SharedIndexInformer{c.policies, c.topologies, c.schemas, c.node, c.namespaces, c.pods}
	return c, nil
}

// stripPod reduces a pod to the fields that the driver reads. It drops annotations, which [cluster.annotations] reads
// when they are needed.
func stripPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok { // a tombstone for a deleted object whose final state is unknown
		return object, nil
	}
	kept := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		ResourceVersion: pod.ResourceVersion, DeletionTimestamp: pod.DeletionTimestamp}}
	kept.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName, HostNetwork: pod.Spec.HostNetwork,
		ResourceClaims: pod.Spec.ResourceClaims, SchedulingGroup: pod.Spec.SchedulingGroup}
	kept.Status = corev1.PodStatus{Phase: pod.Status.Phase, ResourceClaimStatuses: pod.Status.ResourceClaimStatuses,
		ExtendedResourceClaimStatus: pod.Status.ExtendedResourceClaimStatus, Conditions: sandboxCondition(pod)}
	if len(pod.Spec.ResourceClaims) == 0 {
		return kept, nil
	}
	names := func(containers []corev1.Container) (kept []corev1.Container) {
		for i := range containers {
			kept = append(kept, corev1.Container{Name: containers[i].Name,
				Resources: corev1.ResourceRequirements{Claims: containers[i].Resources.Claims}})
		}
		return kept
	}
	kept.Spec.InitContainers, kept.Spec.Containers = names(pod.Spec.InitContainers), names(pod.Spec.Containers)
	return kept, nil
}

func stripNamespace(object any) (any, error) {
	namespace, ok := object.(*corev1.Namespace)
	if !ok {
		return object, nil
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace.Name, UID: namespace.UID,
		ResourceVersion: namespace.ResourceVersion, Labels: namespace.Labels}}, nil
}

func customClient(config *rest.Config) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{policyapi.AddToScheme, chainapi.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	gv := policyapi.GroupVersion()
	config = rest.CopyConfig(config)
	config.GroupVersion, config.APIPath = &gv, "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	// Custom resources have no protobuf encoding, regardless of the caller's configuration.
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("cannot create a client for %s: %w", gv, err)
	}
	return client, nil
}

func informer(
	client cache.Getter, resource string, example runtime.Object, matching fields.Selector,
) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(cache.NewListWatchFromClient(client, resource, metav1.NamespaceAll, matching),
		example, resync, cache.Indexers{})
}

// items returns the objects in an informer's cache, sorted by namespace and name.
func items[T metav1.Object](informer cache.SharedIndexInformer) []T {
	var all []T
	for _, item := range informer.GetStore().List() {
		if object, ok := item.(T); ok {
			all = append(all, object)
		}
	}
	slices.SortFunc(all, func(a, b T) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return all
}

func (c *cluster) run(ctx context.Context) error {
	for _, informer := range append(slices.Clone(c.informers), c.blocks) {
		go informer.RunWithContext(ctx)
	}
	<-ctx.Done()
	return nil
}

func (c *cluster) synced(ctx context.Context) error {
	for _, informer := range c.informers {
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return fmt.Errorf("cannot read from the API server: %w", ctx.Err())
		}
	}
	return nil
}

func (c *cluster) hasSynced() bool {
	return !slices.ContainsFunc(c.informers,
		func(informer cache.SharedIndexInformer) bool { return !informer.HasSynced() })
}

// onChange calls trigger when an input to the slices changes: a policy, or the node's labels or addresses.
func (c *cluster) onChange(trigger func()) error {
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { trigger() },
		UpdateFunc: func(before, after any) {
			if changesOffers(before, after) {
				trigger()
			}
		},
		DeleteFunc: func(any) { trigger() },
	}
	if _, err := c.policies.AddEventHandler(handler); err != nil {
		return err
	}
	_, err := c.node.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { trigger() },
		UpdateFunc: func(before, after any) {
			old, _ := before.(*corev1.Node)
			current, _ := after.(*corev1.Node)
			if old == nil || current == nil || !labels.Equals(old.Labels, current.Labels) ||
				!slices.Equal(publish.NodeAddresses(old), publish.NodeAddresses(current)) {
				trigger()
			}
		},
	})
	return err
}

// changesOffers reports whether an update to a policy may change the set of offered devices or is only an informer
// resync. Without this check, every node would recompute its slices whenever the controller updates the counts in a
// policy's status.
func changesOffers(before, after any) bool {
	old, _ := before.(*policyapi.DeviceExposurePolicy)
	current, _ := after.(*policyapi.DeviceExposurePolicy)
	return old == nil || current == nil || old.ResourceVersion == current.ResourceVersion || old.UID != current.UID ||
		!equality.Semantic.DeepEqual(old.Spec, current.Spec)
}

// onReplaced calls fail when the Node object has been deleted and the kubelet has created a new one. The library that
// writes the slices would keep using the old object's UID as the owner, and the API server deletes slices whose owner
// no longer exists.
func (c *cluster) onReplaced(fail func(error)) error {
	var mu sync.Mutex
	var first types.UID
	inspect := func(item any) {
		node, ok := item.(*corev1.Node)
		if !ok {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if first == "" {
			first = node.UID
		}
		if node.UID != first {
			fail(fmt.Errorf("the Node object %s was deleted and created again: restarting to publish the devices for "+
				"the new object", node.Name))
		}
	}
	_, err := c.node.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: inspect,
		UpdateFunc: func(_, now any) { inspect(now) }})
	return err
}

// ExposurePolicies returns the policies, sorted by name.
func (c *cluster) ExposurePolicies() []policyapi.DeviceExposurePolicy {
	policies := []policyapi.DeviceExposurePolicy{}
	for _, policy := range items[*policyapi.DeviceExposurePolicy](c.policies) {
		policies = append(policies, *policy)
	}
	return policies
}

// PluginSchemas returns the built-in plugin schemas, overridden by those in the cluster.
func (c *cluster) PluginSchemas() cnichain.Schemas {
	var schemas []chainapi.CNIPluginSchema
	for _, schema := range items[*chainapi.CNIPluginSchema](c.schemas) {
		schemas = append(schemas, *schema)
	}
	return cnichain.DefaultSchemas().With(schemas...)
}

func (c *cluster) topology(name string) (*chainapi.NetworkTopology, error) {
	item, found, err := c.topologies.GetStore().GetByKey(name)
	if err != nil {
		return nil, err
	}
	topology, ok := item.(*chainapi.NetworkTopology)
	if !found || !ok {
		return nil, claimspec.UnknownTopology(name)
	}
	return topology, nil
}

// ThisNode returns this node's Node object, which is required to evaluate policies that select nodes.
func (c *cluster) ThisNode() (*corev1.Node, error) {
	item, _, err := c.node.GetStore().GetByKey(c.nodeName)
	if node, ok := item.(*corev1.Node); ok && err == nil {
		return node, nil
	}
	return nil, fmt.Errorf("the API server has no node %q; check --node-name", c.nodeName)
}

func (c *cluster) namespaceLabels(name string) (map[string]string, error) {
	item, found, err := c.namespaces.GetStore().GetByKey(name)
	if namespace, ok := item.(*corev1.Namespace); ok && found && err == nil {
		return namespace.Labels, nil
	}
	return nil, fmt.Errorf("namespace %s is not in the cache yet; try again", name)
}

// cachedPod returns a pod from the cache, or nil if the cache does not contain it.
func (c *cluster) cachedPod(namespace, name, uid string) *corev1.Pod {
	item, _, err := c.pods.GetStore().GetByKey(namespace + "/" + name)
	if pod, ok := item.(*corev1.Pod); ok && err == nil && string(pod.UID) == uid {
		return pod
	}
	return nil
}

func (c *cluster) podWithUID(uid string) *corev1.Pod {
	for _, item := range c.pods.GetStore().List() {
		if pod, ok := item.(*corev1.Pod); ok && string(pod.UID) == uid {
			return pod
		}
	}
	return nil
}

// podUIDIsGone reports whether no pod with this UID is in the cache of this node's pods. It returns false until the
// cache has synced.
func (c *cluster) podUIDIsGone(uid string) bool {
	return c.pods.HasSynced() && c.podWithUID(uid) == nil
}

// isAllocated reads a claim from the API server and reports whether the devices in record are still allocated to the
// claim.
func (c *cluster) isAllocated(ctx context.Context, record *claims.Record) (bool, error) {
	claim, err := c.client.ResourceV1().ResourceClaims(record.Claim.Namespace).Get(ctx, record.Claim.Name,
		metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot read claim %s: %w", record.Claim, err)
	}
	return string(claim.UID) == record.Claim.UID && claim.Status.Allocation != nil && claims.IsRecordOf(record, claim),
		nil
}

func (c *cluster) onPodGone(wake func()) error {
	_, err := c.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(any) { wake() }})
	return err
}

// podIsLeaving reports whether a pod is being deleted, has terminated, or is missing from the cache. Until the cache
// has synced, it returns false for a pod that is missing from it.
func (c *cluster) podIsLeaving(uid string) bool {
	filled := c.pods.HasSynced()
	if pod := c.podWithUID(uid); pod != nil {
		return isLeaving(pod)
	}
	return filled
}

func isLeaving(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil || hasTerminated(pod) }

func hasTerminated(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// podsWithClaim returns the cached pods on this node that use a claim, either by naming it or because the claim was
// created for their extended resources. The record of a shared claim does not list all of its pods, because the kubelet
// prepares a claim only once.
func (c *cluster) podsWithClaim(namespace, claim string) []*corev1.Pod {
	return slices.DeleteFunc(items[*corev1.Pod](c.pods), func(pod *corev1.Pod) bool {
		if pod.Namespace == namespace {
			for name := range resourceclaim.PodClaims(pod) {
				if name == claim {
					return false
				}
			}
		}
		return true
	})
}

// podHasEnded reports whether a pod is missing from the cache or has reached a phase in which its containers never
// start again. It does not rely on deletion alone, because the Pod object may continue to exist for a long time while
// other pods wait for its devices. podHasEnded returns false until the cache has synced.
func (c *cluster) podHasEnded(pod executor.Pod) bool {
	if !c.pods.HasSynced() {
		return false
	}
	cached := c.cachedPod(pod.Namespace, pod.Name, pod.UID)
	return cached == nil || hasTerminated(cached)
}

// annotations reads a pod's annotations from the API server. It returns none if the pod no longer exists.
func (c *cluster) annotations(ctx context.Context, pod *corev1.Pod) (map[string]string, error) {
	current, err := c.livePod(ctx, pod.Namespace, pod.Name, string(pod.UID))
	if current == nil {
		return nil, err
	}
	return current.Annotations, nil
}

// pod returns a pod from the cache or, if the cache does not contain it, from the API server. It returns nil if the pod
// does not exist.
func (c *cluster) pod(ctx context.Context, namespace, name, uid string) (*corev1.Pod, error) {
	if pod := c.cachedPod(namespace, name, uid); pod != nil {
		return pod, nil
	}
	return c.livePod(ctx, namespace, name, uid)
}

// livePod reads a pod from the API server. It returns nil if the pod does not exist.
func (c *cluster) livePod(ctx context.Context, namespace, name, uid string) (*corev1.Pod, error) {
	pod, err := c.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && string(pod.UID) != uid {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read pod %s/%s: %w", namespace, name, err)
	}
	return pod, nil
}
