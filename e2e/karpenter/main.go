// karpenter-allocator uses Karpenter's own code to decide whether ResourceClaims can be allocated. It reads one
// question per line from standard input and writes one answer per line, both in JSON.
//
// It is a separate module that pins Karpenter's version and dependencies. "make karpenter-check" builds it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"unique"

	"github.com/go-logr/logr"
	"github.com/samber/lo"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/scheduling/dynamicresources"
)

// question asks whether devices on a node can be allocated to one pod's claims.
type question struct {
	// Node is the name of an existing node. If it is empty, the question is about a node that would have to be started,
	// and Slices are the slices that this node would publish.
	Node   string                      `json:"node"`
	Slices []resourceapi.ResourceSlice `json:"slices"`
	// Held contains the allocations for other claims.
	Held    []resourceapi.AllocationResult `json:"held"`
	Classes []resourceapi.DeviceClass      `json:"classes"`
	Claims  []*resourceapi.ResourceClaim   `json:"claims"`
}

// answer contains the devices that would be allocated to the claims, or the reason why the claims are rejected.
type answer struct {
	Devices []string `json:"devices,omitempty"`
	Refused string   `json:"refused,omitempty"`
}

func main() {
	log.SetLogger(logr.Discard())
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(questions io.Reader, answers io.Writer) error {
	decoder, encoder := json.NewDecoder(questions), json.NewEncoder(answers)
	for {
		var q question
		if err := decoder.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("cannot read a question: %w", err)
		}
		if err := encoder.Encode(q.decide(context.Background())); err != nil {
			return err
		}
	}
}

// instanceType is the name of the only instance type.
const instanceType = "kind"

// decide answers the question. It creates a new allocator for each question, so answers do not depend on earlier
// questions. A rejection is an answer, not an error.
func (q *question) decide(ctx context.Context) answer {
	node := nodeClaim{name: q.Node}
	var published []dynamicresources.ResourceSlice
	for i := range q.Slices {
		if q.Node == "" {
			node.templates = append(node.templates, template(&q.Slices[i]))
			continue
		}
		published = append(published, dynamicresources.NewAPIServerSlice(&q.Slices[i]))
	}
	allocator := dynamicresources.NewAllocator(published, q.state(), nil, classes{all: q.Classes}, nil)
	result, err := allocator.Allocate(ctx, node, q.Claims)
	if err != nil {
		return answer{Refused: err.Error()}
	}
	result.Allocation.Commit(ctx)
	var devices []string
	for _, claim := range q.Claims {
		meta := allocator.ResourceClaimAllocationMetadataForClaim(client.ObjectKeyFromObject(claim))
		for _, d := range meta.Devices[unique.Make(instanceType)] {
			devices = append(devices, d.DeviceID.Device.Value())
		}
	}
	return answer{Devices: devices}
}

// template converts a node's slice to the format in which cloud providers describe slices to Karpenter.
func template(slice *resourceapi.ResourceSlice) dynamicresources.ResourceSlice {
	t := &cloudprovider.ResourceSliceTemplate{Driver: unique.Make(slice.Spec.Driver),
		Pool:           cloudprovider.ResourcePool{Name: unique.Make(slice.Spec.Pool.Name)},
		SharedCounters: slice.Spec.SharedCounters}
	for _, d := range slice.Spec.Devices {
		t.Devices = append(t.Devices, cloudprovider.Device{Name: unique.Make(d.Name), Attributes: d.Attributes,
			Capacity: d.Capacity, AllowMultipleAllocations: lo.FromPtr(d.AllowMultipleAllocations),
			ConsumesCounters: d.ConsumesCounters})
	}
	return dynamicresources.NewTemplateSlice(t)
}

// state returns the held devices in Karpenter's format. For a shared device, this is the capacity that claims consume;
// any other device is allocated as a whole.
func (q *question) state() dynamicresources.AllocatedDeviceState {
	state := dynamicresources.AllocatedDeviceState{ExclusiveDevices: sets.New[cloudprovider.DeviceID](),
		ConsumedCapacity: map[cloudprovider.DeviceID]map[resourceapi.QualifiedName]resource.Quantity{}}
	for _, allocation := range q.Held {
		for _, r := range allocation.Devices.Results {
			id := cloudprovider.DeviceID{Driver: unique.Make(r.Driver), Pool: unique.Make(r.Pool),
				Device: unique.Make(r.Device)}
			if r.ShareID == nil {
				state.ExclusiveDevices.Insert(id)
				continue
			}
			if state.ConsumedCapacity[id] == nil {
				state.ConsumedCapacity[id] = map[resourceapi.QualifiedName]resource.Quantity{}
			}
			for name, amount := range r.ConsumedCapacity {
				sum := state.ConsumedCapacity[id][name]
				sum.Add(amount)
				state.ConsumedCapacity[id][name] = sum
			}
		}
	}
	return state
}

// nodeClaim is an existing node, or a node that would have to be started.
type nodeClaim struct {
	name      string
	templates []dynamicresources.ResourceSlice
}

// ID implements dynamicresources.NodeClaim, as do the methods below.
func (n nodeClaim) ID() dynamicresources.NodeClaimID { return unique.Make("claim") }

// NodeName returns the node's name, which is empty for a node that would have to be started.
func (n nodeClaim) NodeName() string { return n.name }

// NodePoolID returns the same ID for all nodes.
func (n nodeClaim) NodePoolID() dynamicresources.NodePoolID { return unique.Make("pool") }

// Requirements returns no requirements.
func (n nodeClaim) Requirements() scheduling.Requirements { return scheduling.NewRequirements() }

// InstanceTypes returns the only instance type.
func (n nodeClaim) InstanceTypes() []dynamicresources.InstanceTypeID {
	return []dynamicresources.InstanceTypeID{unique.Make(instanceType)}
}

// ResourceSlices returns the slices that the node would publish.
func (n nodeClaim) ResourceSlices() map[dynamicresources.InstanceTypeID][]dynamicresources.ResourceSlice {
	return map[dynamicresources.InstanceTypeID][]dynamicresources.ResourceSlice{unique.Make(instanceType): n.templates}
}

// classes is a client that supports only DeviceClasses, because Karpenter does not read anything else.
type classes struct {
	client.Client
	all []resourceapi.DeviceClass
}

// Get implements client.Client.
func (c classes) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	class, ok := object.(*resourceapi.DeviceClass)
	if !ok {
		return fmt.Errorf("no objects of type %T exist", object)
	}
	for i := range c.all {
		if c.all[i].Name == key.Name {
			*class = c.all[i]
			return nil
		}
	}
	return fmt.Errorf("DeviceClass %s does not exist", key.Name)
}
