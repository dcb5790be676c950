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

	"github.com/dra-networking/dra-network-driver/policy/nearest"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// Cluster has the objects that the scheduler allocates by.
//
// Objects are only read. Claims must have an allocation; features that are off must be off in the cluster, too, or the
// answer is another than the scheduler's.
type Cluster struct {
	Nodes   []*corev1.Node
	Slices  []*resourceapi.ResourceSlice
	Classes []*resourceapi.DeviceClass
	// TaintRules add taints to the devices of Slices.
	TaintRules []resourceapi.DeviceTaintRule
	// Claims are those that have devices.
	Claims []*resourceapi.ResourceClaim
	// ListAttributes, CompatibilityGroups and DerivedAttributes are feature gates that are alpha in Kubernetes 1.37.
	// The first two are on as well if Live, and some slice has what they are for.
	ListAttributes, CompatibilityGroups, DerivedAttributes bool
	// Live says that it is asked from an API server, and not made of files only.
	Live bool
	// plugins are the names of CNI plugins by their attributes, as far as they are known: host-device of host_device.
	plugins map[string]string
	// policies are those that the nodes publish by, as far as they are known.
	policies []policyapi.DeviceExposurePolicy
}

// Simulator tries claims out. It is not safe for concurrent use. Compiled expressions are kept, since the allocator
// evaluates the same ones for each node and trial.
type Simulator struct {
	cluster  Cluster
	compiled *dracel.Cache
	// taken are the claims that have devices, by UID: those of the cluster that have a UID, and those that got devices
	// here. They are among those of the cluster, too.
	taken map[types.UID]*resourceapi.ResourceClaim
	// given are those of taken that got their devices here.
	given map[types.UID]bool
}

// New returns a simulator of a cluster.
func New(cluster Cluster) *Simulator {
	cluster.Slices = withTaints(cluster.Slices, cluster.TaintRules)
	if cluster.Live { // an API server keeps nothing that is for a feature that it does not have
		cluster.ListAttributes = cluster.ListAttributes || anyDevice(cluster.Slices, hasListAttribute)
		cluster.CompatibilityGroups = cluster.CompatibilityGroups || anyDevice(cluster.Slices, hasGroups)
	}
	s := &Simulator{cluster: cluster, taken: map[types.UID]*resourceapi.ResourceClaim{}, given: map[types.UID]bool{},
		compiled: dracel.NewCache(200, dracel.Features{EnableConsumableCapacity: true,
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

// Reserve makes claims that were given devices part of the cluster, and does nothing for claims that were not. results
// has one element for each claim, or none. A claim that was taken before keeps its devices: several pods may name it.
func (s *Simulator) Reserve(claims []*resourceapi.ResourceClaim, results []resourceapi.AllocationResult) {
	for i := range results {
		if s.taken[claims[i].UID] != nil {
			continue
		}
		taken := claims[i].DeepCopy()
		taken.Status.Allocation = &results[i]
		s.taken[taken.UID], s.given[taken.UID] = taken, true
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
	return nil, fmt.Errorf("there is no DeviceClass %s", name)
}

// remedy says what to do about a class that is not there. Those of a live cluster are made in it.
func (c classes) remedy(name string, live bool) string {
	names := make([]string, len(c))
	for i, class := range c {
		names[i] = class.Name
	}
	if near := nearest.Word(name, names); near != "" {
		return fmt.Sprintf("did you mean %s?", near)
	}
	if live {
		return "create the NetworkTopology that it is made for, or the class itself"
	}
	return "give the NetworkTopology that it is made for, or the class itself, with -f"
}

// missing says which classes that claims name are not there, each once. The scheduler gives up on a pod with such a
// claim on every node.
func (s *Simulator) missing(claims []*resourceapi.ResourceClaim) []string {
	known := classes(s.cluster.Classes)
	var texts []string
	for _, claim := range claims {
		for _, name := range classNames(claim) {
			_, err := known.Get(name)
			if err == nil {
				continue
			}
			if text := fmt.Sprintf("%v; %s", err, known.remedy(name, s.cluster.Live)); !slices.Contains(texts, text) {
				texts = append(texts, text)
			}
		}
	}
	return texts
}

// classNames are the classes that a claim's requests name, alternatives too.
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

// allocate runs the allocator for claims that all must fit on a node, beside those that hold devices. There are no
// results if they do not fit.
//
// A new allocator is made each time, as kube-scheduler makes one for each pod: it keeps state of what is allocated. An
// error is one that would also end the scheduling of the pod on every node, such as a selector that reads an attribute
// which a device lacks; that claims do not fit is none.
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

// stateOf returns what kube-scheduler keeps about allocated claims. With admin access a device is not taken from others
// (KEP-5018), so it does not count. A shared device counts by its share and by what was consumed of it (KEP-5075).
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

// Complete sets the defaults of the API server in a claim that was not sent to it. The allocator expects them: a count
// of 0 would be an allocation of nothing.
func Complete(claim *resourceapi.ResourceClaim) error {
	if len(claim.Spec.Devices.Requests) == 0 {
		return errors.New("the claim asks for nothing; add spec.devices.requests")
	}
	for i := range claim.Spec.Devices.Requests {
		request := &claim.Spec.Devices.Requests[i]
		if request.Exactly == nil && len(request.FirstAvailable) == 0 {
			return fmt.Errorf("request %s says neither exactly nor firstAvailable", request.Name)
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

// NodesOf returns a node for every node name in slices, sorted, with labels that only a name gives: for slices of
// files. A slice that is for all nodes with some other label is reached by none of these.
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
