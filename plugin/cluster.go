package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
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
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
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

// resync is the period in which informers repeat their objects, in case a handler missed an event.
const resync = 10 * time.Minute

// cluster provides objects of the API server from caches.
type cluster struct {
	client     kubernetes.Interface
	nodeName   string
	policies   cache.SharedIndexInformer
	topologies cache.SharedIndexInformer
	schemas    cache.SharedIndexInformer
	node       cache.SharedIndexInformer
	namespaces cache.SharedIndexInformer
	pods       cache.SharedIndexInformer
	// blocks are the AddressBlocks of the node. A cluster whose definitions are older than the driver has none, so
	// nothing else waits for them.
	blocks cache.SharedIndexInformer
	// readDefinition reads a NetworkAttachmentDefinition, namespace/name, from the API server.
	readDefinition func(ctx context.Context, name string) ([]byte, error)
	// informers are the running informers that the driver needs: all except blocks.
	informers []cache.SharedIndexInformer
}

func newCluster(config *rest.Config, client kubernetes.Interface, nodeName string) (*cluster, error) {
	custom, codec, err := customClient(config)
	if err != nil {
		return nil, err
	}
	byName := informers.WithTweakListOptions(func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermEqualSelector("metadata.name", nodeName).String()
	})
	onNode := informers.WithTweakListOptions(func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", nodeName).String()
	})
	c := &cluster{
		client:   client,
		nodeName: nodeName,
		policies: informer(typed[*policyapi.DeviceExposurePolicy, *policyapi.DeviceExposurePolicyList](custom, codec,
			"deviceexposurepolicies", &policyapi.DeviceExposurePolicy{}, &policyapi.DeviceExposurePolicyList{})),
		topologies: informer(typed[*chainapi.NetworkTopology, *chainapi.NetworkTopologyList](custom, codec,
			"networktopologies", &chainapi.NetworkTopology{}, &chainapi.NetworkTopologyList{})),
		schemas: informer(typed[*chainapi.CNIPluginSchema, *chainapi.CNIPluginSchemaList](custom, codec,
			"cnipluginschemas", &chainapi.CNIPluginSchema{}, &chainapi.CNIPluginSchemaList{})),
		node: informers.NewSharedInformerFactoryWithOptions(client, resync,
			byName).Core().V1().Nodes().Informer(),
		namespaces: informers.NewSharedInformerFactory(client, resync).Core().V1().Namespaces().Informer(),
		pods:       informers.NewSharedInformerFactoryWithOptions(client, resync, onNode).Core().V1().Pods().Informer(),
	}
	// Strip the objects before they are stored: users decide how large pods are, and the informer lists all namespaces
	// of the cluster. The informers stream their first list object by object (WatchList).
	if err := errors.Join(c.pods.SetTransform(stripPod), c.namespaces.SetTransform(stripNamespace)); err != nil {
		return nil, err
	}
	c.blocks = blockInformer(custom, codec, nodeName)
	c.readDefinition = c.getDefinition
	c.informers = []cache.SharedIndexInformer{c.policies, c.topologies, c.schemas, c.node, c.namespaces, c.pods}
	return c, nil
}

// stripPod reduces a pod to the fields that the driver reads. It drops annotations, which [cluster.annotations] reads
// when they are needed.
func stripPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok { // the name of a deleted object, whose last state is unknown
		return object, nil
	}
	kept := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		ResourceVersion: pod.ResourceVersion, DeletionTimestamp: pod.DeletionTimestamp}}
	kept.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName, HostNetwork: pod.Spec.HostNetwork,
		ResourceClaims: pod.Spec.ResourceClaims, SchedulingGroup: pod.Spec.SchedulingGroup}
	kept.Status = corev1.PodStatus{Phase: pod.Status.Phase, ResourceClaimStatuses: pod.Status.ResourceClaimStatuses,
		ExtendedResourceClaimStatus: pod.Status.ExtendedResourceClaimStatus}
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

// stripNamespace reduces a namespace to its labels.
func stripNamespace(object any) (any, error) {
	namespace, ok := object.(*corev1.Namespace)
	if !ok {
		return object, nil
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace.Name, UID: namespace.UID,
		ResourceVersion: namespace.ResourceVersion, Labels: namespace.Labels}}, nil
}

// customClient returns a client for the driver's API group.
func customClient(config *rest.Config) (rest.Interface, runtime.ParameterCodec, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{policyapi.AddToScheme, chainapi.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, nil, err
		}
	}
	gv := policyapi.GroupVersion()
	config = rest.CopyConfig(config)
	config.GroupVersion, config.APIPath = &gv, "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	// Custom resources have no protobuf encoding, whatever the caller's configuration requests.
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a client of %s: %w", gv, err)
	}
	return client, runtime.NewParameterCodec(scheme), nil
}

type object interface {
	runtime.Object
	metav1.Object
}

// resourceOf is a resource that an informer can list and watch.
type resourceOf struct {
	list    func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch   func(context.Context, metav1.ListOptions) (watch.Interface, error)
	example runtime.Object
}

// typed returns a custom resource for an informer. It copies example and list for every object that it reads.
func typed[T object, L runtime.Object](
	client rest.Interface, codec runtime.ParameterCodec, resource string, example T, list L,
) resourceOf {
	typedClient := gentype.NewClientWithList[T, L](resource, client, codec, "",
		func() T { return example.DeepCopyObject().(T) }, func() L { return list.DeepCopyObject().(L) })
	return resourceOf{
		list: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return typedClient.List(ctx, options)
		},
		watch:   typedClient.Watch,
		example: example,
	}
}

func informer(resource resourceOf) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(
		&cache.ListWatch{ListWithContextFunc: resource.list, WatchFuncWithContext: resource.watch}, resource.example,
		resync, cache.Indexers{})
}

// run runs the informers until ctx ends.
func (c *cluster) run(ctx context.Context) error {
	for _, informer := range append(slices.Clone(c.informers), c.blocks) {
		go informer.RunWithContext(ctx)
	}
	<-ctx.Done()
	return nil
}

// synced waits until every cache is filled.
func (c *cluster) synced(ctx context.Context) error {
	for _, informer := range c.informers {
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return fmt.Errorf("cannot read from the API server: %w", ctx.Err())
		}
	}
	return nil
}

// hasSynced reports whether every cache is filled.
func (c *cluster) hasSynced() bool {
	return !slices.ContainsFunc(c.informers,
		func(informer cache.SharedIndexInformer) bool { return !informer.HasSynced() })
}

// onChange calls trigger when the inputs of the slices change: a policy, or labels or addresses of the node.
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

// changesOffers reports whether an update of a policy may change its devices, or is a resync of the informer. An update
// of the counts that the controller writes must not make all nodes compute their slices again.
func changesOffers(before, after any) bool {
	old, _ := before.(*policyapi.DeviceExposurePolicy)
	current, _ := after.(*policyapi.DeviceExposurePolicy)
	return old == nil || current == nil || old.ResourceVersion == current.ResourceVersion || old.UID != current.UID ||
		!equality.Semantic.DeepEqual(old.Spec, current.Spec)
}

// onReplaced calls fail when the Node object was deleted and the kubelet created a new one. The library that writes the
// slices keeps the UID of their owner, and the API server deletes slices of an owner that no longer exists.
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
	byName := map[string]policyapi.DeviceExposurePolicy{}
	for _, item := range c.policies.GetStore().List() {
		if policy, ok := item.(*policyapi.DeviceExposurePolicy); ok {
			byName[policy.Name] = *policy
		}
	}
	policies := make([]policyapi.DeviceExposurePolicy, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		policies = append(policies, byName[name])
	}
	return policies
}

// PluginSchemas returns the built-in plugin contracts, overridden by those of the cluster.
func (c *cluster) PluginSchemas() cnichain.Schemas {
	byName := map[string]chainapi.CNIPluginSchema{}
	for _, item := range c.schemas.GetStore().List() {
		if schema, ok := item.(*chainapi.CNIPluginSchema); ok {
			byName[schema.Name] = *schema
		}
	}
	schemas := make([]chainapi.CNIPluginSchema, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		schemas = append(schemas, byName[name])
	}
	return cnichain.DefaultSchemas().With(schemas...)
}

// allTopologies returns all NetworkTopologies in no particular order.
func (c *cluster) allTopologies() []*chainapi.NetworkTopology {
	var topologies []*chainapi.NetworkTopology
	for _, item := range c.topologies.GetStore().List() {
		if topology, ok := item.(*chainapi.NetworkTopology); ok {
			topologies = append(topologies, topology)
		}
	}
	return topologies
}

// topology returns a NetworkTopology by name.
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

// ThisNode returns the Node object. Policies for some nodes cannot be evaluated without it.
func (c *cluster) ThisNode() (*corev1.Node, error) {
	item, _, err := c.node.GetStore().GetByKey(c.nodeName)
	if node, ok := item.(*corev1.Node); ok && err == nil {
		return node, nil
	}
	return nil, fmt.Errorf("the API server has no node %q; check --node-name", c.nodeName)
}

// namespaceLabels returns the labels of a namespace.
func (c *cluster) namespaceLabels(name string) (map[string]string, error) {
	item, found, err := c.namespaces.GetStore().GetByKey(name)
	if namespace, ok := item.(*corev1.Namespace); ok && found && err == nil {
		return namespace.Labels, nil
	}
	return nil, fmt.Errorf("namespace %s is not in the cache yet; try again", name)
}

// cachedPod returns a pod from the cache, or nil if the cache does not contain it.
func (c *cluster) cachedPod(namespace, name, uid string) *corev1.Pod {
	pod, err := corelisters.NewPodLister(c.pods.GetIndexer()).Pods(namespace).Get(name)
	if err != nil || string(pod.UID) != uid {
		return nil
	}
	return pod
}

// podUIDs returns the UIDs of the pods on this node in the cache; known reports whether the cache is filled.
func (c *cluster) podUIDs() (uids sets.Set[string], known bool) {
	uids = sets.New[string]()
	for _, item := range c.pods.GetStore().List() {
		if pod, ok := item.(*corev1.Pod); ok {
			uids.Insert(string(pod.UID))
		}
	}
	return uids, c.pods.HasSynced()
}

// podUIDIsGone reports whether the cache of pods on this node does not contain the UID. It returns false until the
// cache is filled.
func (c *cluster) podUIDIsGone(uid string) bool {
	if !c.pods.HasSynced() {
		return false
	}
	for _, item := range c.pods.GetStore().List() {
		if pod, ok := item.(*corev1.Pod); ok && string(pod.UID) == uid {
			return false
		}
	}
	return true
}

// isAllocated reads a claim from the API server and reports whether it still has the devices of a record.
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

// onPodGone calls wake when a pod is removed from the API server.
func (c *cluster) onPodGone(wake func()) error {
	_, err := c.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(any) { wake() }})
	return err
}

// podIsLeaving reports whether a pod is being deleted, has ended, or is missing from the cache. It returns false for a
// missing pod until the cache is filled.
func (c *cluster) podIsLeaving(uid string) bool {
	for _, item := range c.pods.GetStore().List() {
		if pod, ok := item.(*corev1.Pod); ok && string(pod.UID) == uid {
			return isLeaving(pod)
		}
	}
	return c.pods.HasSynced()
}

// isLeaving reports whether a pod is being deleted, or has ended.
func isLeaving(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded ||
		pod.Status.Phase == corev1.PodFailed
}

// podsWithClaim returns the pods on this node, from the cache, that name a claim or for whose extended resources the
// claim was created. The record of a shared claim does not list all of its pods, because the kubelet prepares a claim
// only once.
func (c *cluster) podsWithClaim(namespace, claim string) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, item := range c.pods.GetStore().List() {
		pod, ok := item.(*corev1.Pod)
		if !ok || pod.Namespace != namespace {
			continue
		}
		for name := range resourceclaim.PodClaims(pod) {
			if name == claim {
				pods = append(pods, pod)
				break
			}
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return pods
}

// podHasEnded reports whether the cache does not contain a pod, or contains it in a phase in which no container starts
// again: the object of such a pod may stay for a long time while other pods wait for its devices. It returns false
// until the cache is filled.
func (c *cluster) podHasEnded(pod executor.Pod) bool {
	if !c.pods.HasSynced() {
		return false
	}
	cached := c.cachedPod(pod.Namespace, pod.Name, pod.UID)
	return cached == nil || cached.Status.Phase == corev1.PodSucceeded || cached.Status.Phase == corev1.PodFailed
}

// annotations reads the annotations of a pod from the API server. They are empty if the pod no longer exists.
func (c *cluster) annotations(ctx context.Context, pod *corev1.Pod) (map[string]string, error) {
	current, err := c.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && current.UID != pod.UID {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the annotations of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return current.Annotations, nil
}

// pod returns a pod from the cache, or else from the API server.
func (c *cluster) pod(ctx context.Context, namespace, name, uid string) (*corev1.Pod, error) {
	if pod := c.cachedPod(namespace, name, uid); pod != nil {
		return pod, nil
	}
	pod, err := c.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("cannot read pod %s/%s: %w", namespace, name, err)
	}
	if apierrors.IsNotFound(err) || string(pod.UID) != uid {
		return nil, nil
	}
	return pod, nil
}
