package simulate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"
)

// Cluster contains the objects that the scheduler uses to allocate devices.
//
// The simulator never modifies these objects. Features that are disabled in the cluster must also be disabled here;
// otherwise, the result differs from the scheduler's.
type Cluster struct {
	Nodes   []*corev1.Node
	Slices  []*resourceapi.ResourceSlice
	Classes []*resourceapi.DeviceClass
	// TaintRules add taints to the devices in Slices.
	TaintRules []resourceapi.DeviceTaintRule
	// Claims are the allocated claims. Each must have an allocation.
	Claims []*resourceapi.ResourceClaim
	// ListAttributes, CompatibilityGroups and DerivedAttributes are feature gates that are alpha in Kubernetes 1.37. If
	// Live is true, ListAttributes and CompatibilityGroups are also enabled when a slice uses the corresponding
	// feature.
	ListAttributes, CompatibilityGroups, DerivedAttributes bool
	// Live is true if some objects come from an API server rather than only from files.
	Live bool
}

// Simulator tests whether claims fit. It is not safe for concurrent use. It caches compiled expressions, because the
// allocator evaluates the same expressions for every node and trial.
type Simulator struct {
	cluster  Cluster
	compiled *dracel.Cache
	// taken maps UIDs to allocated claims: claims in the cluster that have a UID, and claims that the simulation has
	// allocated. The latter are also appended to cluster.Claims.
	taken map[types.UID]*resourceapi.ResourceClaim
	// takers maps the UID of each claim allocated by the simulation to the pod or claim that it was allocated for.
	takers map[types.UID]string
}

// New returns a simulator for a cluster.
func New(cluster Cluster) *Simulator {
	cluster.Slices = withTaints(cluster.Slices, cluster.TaintRules)
	if cluster.Live { // an API server drops fields of disabled features
		cluster.ListAttributes = cluster.ListAttributes || anyDevice(cluster.Slices, hasListAttribute)
		cluster.CompatibilityGroups = cluster.CompatibilityGroups || anyDevice(cluster.Slices, hasGroups)
	}
	s := &Simulator{cluster: cluster, taken: map[types.UID]*resourceapi.ResourceClaim{},
		takers: map[types.UID]string{}, compiled: dracel.NewCache(200, dracel.Features{EnableConsumableCapacity: true,
			EnableListTypeAttributes: cluster.ListAttributes})}
	for _, claim := range cluster.Claims {
		if claim.UID != "" {
			s.taken[claim.UID] = claim
		}
	}
	return s
}

func anyDevice(published []*resourceapi.ResourceSlice, matches func(resourceapi.Device) bool) bool {
	return slices.ContainsFunc(published, func(slice *resourceapi.ResourceSlice) bool {
		return slices.ContainsFunc(slice.Spec.Devices, matches)
	})
}

func hasListAttribute(device resourceapi.Device) bool {
	for _, attribute := range device.Attributes {
		if len(attribute.IntValues)+len(attribute.BoolValues)+len(attribute.StringValues)+
			len(attribute.VersionValues) > 0 {
			return true
		}
	}
	return false
}

func hasGroups(device resourceapi.Device) bool {
	return slices.ContainsFunc(device.ConsumesCounters, func(consumed resourceapi.DeviceCounterConsumption) bool {
		return len(consumed.CompatibilityGroups) > 0
	})
}

// Reserve adds newly allocated claims to the cluster. taker is the pod or claim that they were allocated for. results
// has one element per claim, or none if the claims were not allocated. A claim that is already allocated keeps its
// devices, because several pods may reference it.
func (s *Simulator) Reserve(taker string, claims []*resourceapi.ResourceClaim, results []resourceapi.AllocationResult) {
	for i := range results {
		if s.taken[claims[i].UID] != nil {
			continue
		}
		taken := claims[i].DeepCopy()
		taken.Status.Allocation = &results[i]
		s.taken[taken.UID], s.takers[taken.UID] = taken, taker
		s.cluster.Claims = append(s.cluster.Claims, taken)
	}
}

// classes implements structured.DeviceClassLister.
type classes []*resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) { return c, nil }

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, class := range c {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, fmt.Errorf("DeviceClass %s does not exist", name)
}

// remedy returns a suggested fix for a missing class. In a live cluster, the user must create the class.
func remedy(live bool) string {
	if live {
		return "create the NetworkTopology that it belongs to, or the class itself"
	}
	return "pass the NetworkTopology that it belongs to, or the class itself, with -f"
}

// missing returns a message for each class that does not exist. If a class is missing, the scheduler rejects every
// node.
func (s *Simulator) missing(claims []*resourceapi.ResourceClaim) []string {
	known := classes(s.cluster.Classes)
	var texts []string
	for _, claim := range claims {
		for _, name := range classNames(claim) {
			_, err := known.Get(name)
			if err == nil {
				continue
			}
			if text := fmt.Sprintf("%v; %s", err, remedy(s.cluster.Live)); !slices.Contains(texts, text) {
				texts = append(texts, text)
			}
		}
	}
	return texts
}

// classNames returns the names of the classes referenced in a claim's requests, including alternatives.
func classNames(claim *resourceapi.ResourceClaim) []string {
	var names []string
	for _, request := range claim.Spec.Devices.Requests {
		if request.Exactly != nil {
			names = append(names, request.Exactly.DeviceClassName)
		}
		for _, sub := range request.FirstAvailable {
			names = append(names, sub.DeviceClassName)
		}
	}
	return names
}

// allocate runs the allocator for claims that must all fit on one node, alongside the allocated claims in beside. The
// result is nil if the claims do not fit.
//
// Each call creates a new allocator, as kube-scheduler does for each pod, because an allocator remembers its
// allocations. allocate returns an error only if kube-scheduler would give up on scheduling the pod on any node, for
// example because a selector reads an attribute that a device does not have.
func (s *Simulator) allocate(ctx context.Context, node *corev1.Node, claims,
	beside []*resourceapi.ResourceClaim) ([]resourceapi.AllocationResult, error) {
	features := structured.Features{
		AdminAccess: true, PrioritizedList: true, PartitionableDevices: true, ConsumableCapacity: true,
		DeviceTaints: true, DeviceBindingAndStatus: true, FractionalCapacityRange: true,
		ListTypeAttributes: s.cluster.ListAttributes, CompatibilityGroups: s.cluster.CompatibilityGroups,
		DerivedAttributes: s.cluster.DerivedAttributes,
	}
	allocator, err := structured.NewAllocator(ctx, features, stateOf(beside), classes(s.cluster.Classes),
		s.cluster.Slices, s.compiled)
	if err != nil {
		return nil, err
	}
	results, err := allocator.Allocate(ctx, node, claims)
	if err != nil {
		return nil, fmt.Errorf("the scheduler would give up on the pod: %w", err)
	}
	return results, nil
}

// stateOf returns the state that kube-scheduler maintains for allocated claims. Allocations with admin access are
// skipped, because they do not reserve the device (KEP-5018). For a shared device, the state records the share and its
// consumed capacity (KEP-5075).
func stateOf(claims []*resourceapi.ResourceClaim) structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, claim := range claims {
		for i := range claim.Status.Allocation.Devices.Results {
			result := &claim.Status.Allocation.Devices.Results[i]
			id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
			switch {
			case ptr.Deref(result.AdminAccess, false):
			case result.ShareID == nil:
				state.AllocatedDevices.Insert(id)
			default:
				state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, result.ShareID))
				state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, result.ConsumedCapacity))
			}
		}
	}
	return state
}

// Complete sets the API server's defaults in a claim read from a file. The allocator depends on these defaults: with a
// count of 0, it would allocate no devices.
func Complete(claim *resourceapi.ResourceClaim) error {
	if len(claim.Spec.Devices.Requests) == 0 {
		return errors.New("the claim contains no requests; add spec.devices.requests")
	}
	for i := range claim.Spec.Devices.Requests {
		request := &claim.Spec.Devices.Requests[i]
		if request.Exactly == nil && len(request.FirstAvailable) == 0 {
			return fmt.Errorf("request %s has neither exactly nor firstAvailable", request.Name)
		}
		if e := request.Exactly; e != nil {
			e.AllocationMode, e.Count = complete(e.AllocationMode, e.Count)
		}
		for j := range request.FirstAvailable {
			sub := &request.FirstAvailable[j]
			sub.AllocationMode, sub.Count = complete(sub.AllocationMode, sub.Count)
		}
	}
	return nil
}

func complete(mode resourceapi.DeviceAllocationMode, count int64) (resourceapi.DeviceAllocationMode, int64) {
	if mode == "" {
		mode = resourceapi.DeviceAllocationModeExactCount
	}
	if mode == resourceapi.DeviceAllocationModeExactCount && count == 0 {
		count = 1
	}
	return mode, count
}

// NodesOf returns a node for each node name in slices, sorted by name. It is intended for slices read from files. The
// nodes only have the hostname label, so they do not match slices that select nodes by another label.
func NodesOf(published []*resourceapi.ResourceSlice) []*corev1.Node {
	names := map[string]bool{}
	for _, slice := range published {
		if name := ptr.Deref(slice.Spec.NodeName, ""); name != "" {
			names[name] = true
		}
	}
	nodes := make([]*corev1.Node, 0, len(names))
	for _, name := range slices.Sorted(maps.Keys(names)) {
		nodes = append(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{corev1.LabelHostname: name}}})
	}
	return nodes
}
