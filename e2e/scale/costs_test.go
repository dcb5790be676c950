package scale

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

func isNotFound(err error) bool { return apierrors.IsNotFound(err) }

// reading is the cost of listing slices as protobuf, as Kubernetes components do.
type reading struct {
	Bytes        int     `json:"bytes"`
	Milliseconds float64 `json:"milliseconds"`
}

// list sends a single list request for the slices that match a field selector.
func (f *fleet) list(t *testing.T, selector string) reading {
	t.Helper()
	begin := time.Now()
	data, err := f.client.ResourceV1().RESTClient().Get().Resource("resourceslices").
		VersionedParams(&metav1.ListOptions{FieldSelector: selector, ResourceVersion: "0"}, scheme.ParameterCodec).
		DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return reading{Bytes: len(data), Milliseconds: float64(time.Since(begin).Microseconds()) / 1000}
}

// sliceSizes returns the sizes of one node's slices, in ascending order. Sizes matter, because when a device changes,
// the whole slice that contains it is sent to each watcher.
func (f *fleet) sliceSizes(t *testing.T) []int {
	t.Helper()
	var sizes []int
	for _, slice := range f.slicesOf(t, nodeName(0)) {
		sizes = append(sizes, slice.Size())
	}
	slices.Sort(sizes)
	return sizes
}

// slicesOf returns the slices published for a node.
func (f *fleet) slicesOf(t *testing.T, node string) []resourceapi.ResourceSlice {
	t.Helper()
	list, err := f.client.ResourceV1().ResourceSlices().List(t.Context(),
		metav1.ListOptions{FieldSelector: resourceapi.ResourceSliceSelectorNodeName + "=" + node})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// layout is a way of publishing the same devices.
type layout string

const (
	// ours is the layout that the driver publishes.
	ours layout = "driver"
	// samePools uses the same pools and slices as the driver, but without counters.
	samePools layout = "same-pools"
	// onePool puts all devices on a node in a single pool, without counters, and with as many devices per slice as the
	// API allows.
	onePool layout = "one-pool"
)

// without returns the devices in slices in the given layout, without counters.
func without(layout layout, all []resourceapi.ResourceSlice) []resourceapi.ResourceSlice {
	byPool := map[string][]resourceapi.Device{}
	for _, slice := range all {
		pool := slice.Spec.Pool.Name
		if layout == onePool {
			pool = "node"
		}
		for _, d := range slice.Spec.Devices {
			d.ConsumesCounters = nil
			byPool[pool] = append(byPool[pool], d)
		}
	}
	var plain []resourceapi.ResourceSlice
	for _, pool := range slices.Sorted(maps.Keys(byPool)) {
		var parts []resourceapi.ResourceSlice
		for chunk := range slices.Chunk(byPool[pool], resourceapi.ResourceSliceMaxDevices) {
			parts = append(parts, resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{
				Pool: resourceapi.ResourcePool{Name: pool, Generation: 1}, Devices: chunk}})
		}
		for i := range parts {
			parts[i].Spec.Pool.ResourceSliceCount = int64(len(parts))
		}
		plain = append(plain, parts...)
	}
	return plain
}

// put publishes the devices in sample for all nodes, in the given layout, and returns the number of slices.
func (f *fleet) put(t *testing.T, layout layout, sample []resourceapi.ResourceSlice) int {
	t.Helper()
	slices := sample
	if layout != ours {
		slices = without(layout, sample)
	}
	f.each(t, f.nodes, func(ctx context.Context, i int) error {
		node := nodeName(i)
		for _, slice := range slices {
			spec := slice.Spec
			spec.Driver, spec.NodeName = "dra.networking", &node
			spec.Pool.Name = node + "/" + strings.TrimPrefix(spec.Pool.Name, nodeName(0)+"/")
			object := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{GenerateName: node + "-"}, Spec: spec}
			if _, err := f.client.ResourceV1().ResourceSlices().Create(ctx, object,
				metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
	return len(slices) * f.nodes
}

// clear deletes the slices for the first nodes.
func (f *fleet) clear(t *testing.T, nodes int) {
	t.Helper()
	f.each(t, nodes, func(ctx context.Context, i int) error {
		return f.client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{},
			metav1.ListOptions{FieldSelector: resourceapi.ResourceSliceSelectorNodeName + "=" + nodeName(i)})
	})
}
