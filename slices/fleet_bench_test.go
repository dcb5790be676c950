package slices_test

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/dra-networking/dra-network-driver/discovery"
)

// fleetOf copies the slices of one node to a number of nodes. The copies share the devices.
func fleetOf(nodes int, sample []*resourceapi.ResourceSlice) []*resourceapi.ResourceSlice {
	all := make([]*resourceapi.ResourceSlice, 0, nodes*len(sample))
	for i := range nodes {
		node := fmt.Sprintf("worker-%d", i+1)
		for _, slice := range sample {
			other := *slice
			other.Name = node + "-" + slice.Name
			other.Spec.NodeName = &node
			other.Spec.Pool.Name = strings.Replace(slice.Spec.Pool.Name, "worker-1", node, 1)
			all = append(all, &other)
		}
	}
	return all
}

// packed returns the devices from the slices in a single pool without counters, with as many devices per slice as the
// API allows.
func packed(sample []*resourceapi.ResourceSlice) []*resourceapi.ResourceSlice {
	var devices []resourceapi.Device
	for _, slice := range sample {
		for _, d := range slice.Spec.Devices {
			d.ConsumesCounters = nil
			devices = append(devices, d)
		}
	}
	var all []*resourceapi.ResourceSlice
	for len(devices) > 0 {
		n := min(len(devices), resourceapi.ResourceSliceMaxDevices)
		slice := sample[0].DeepCopy()
		slice.Name = fmt.Sprintf("%05x", len(all))
		slice.Spec.Pool.Name, slice.Spec.Devices, slice.Spec.SharedCounters = "worker-1/all", devices[:n], nil
		all, devices = append(all, slice), devices[n:]
	}
	for _, slice := range all {
		slice.Spec.Pool.ResourceSliceCount = int64(len(all))
	}
	return all
}

// BenchmarkFleet measures the cost, for the scheduler, of processing a fleet's slices for a pod with one device: the
// fixed cost per pod, the cost per node that the scheduler tries, and the total for all nodes that it tries in a
// cluster of a given size. The devices are 64 functions on four NICs, where pods share the NICs and, in the mixed case,
// can also get whole NICs; 64 or 200 links with one entry each; or 64 links with two mutually exclusive entries each.
// The devices of a node are either in the driver's pools or in a single plain pool.
func BenchmarkFleet(b *testing.B) {
	links := func(n int) (all []discovery.Device) {
		for i := range n {
			all = append(all, nic(fmt.Sprintf("eth%d", i)))
		}
		return all
	}
	var functions []discovery.Device
	for i := range 4 {
		functions = append(functions, pf(fmt.Sprintf("enp%ds0", i), 15)...)
	}
	for _, kind := range []struct {
		name     string
		devices  []discovery.Device
		plugin   string
		policies []string
	}{
		{"64-functions", functions, "sriov", []string{macvlanPolicy, vfPolicy}},
		{"64-mixed-functions", functions, "sriov", []string{macvlanPolicy, passthroughPolicy, vfPolicy}},
		{"64-links", links(64), "macvlan", []string{macvlanPolicy}},
		{"200-links", links(200), "macvlan", []string{macvlanPolicy}},
		{"64-mixed-links", links(64), "macvlan", []string{macvlanPolicy, passthroughPolicy}},
	} {
		s := newScheduler(b, build(b, kind.devices, kind.policies...))
		layouts := map[string][]*resourceapi.ResourceSlice{"driver": s.slices, "one-pool": packed(s.slices)}
		for _, layout := range []string{"driver", "one-pool"} {
			for _, nodes := range []int{1000, 5000} {
				sample := layouts[layout]
				all := fleetOf(nodes, sample)
				b.Run(fmt.Sprintf("%s/%s/nodes=%d", kind.name, layout, nodes), func(b *testing.B) {
					s.perPod(b, all, kind.plugin, nodes)
				})
			}
		}
	}
}

// perPod measures the CPU time for creating an allocator and for processing a node. Unlike elapsed time, CPU time is
// not affected by other load on the machine.
func (s *scheduler) perPod(b *testing.B, all []*resourceapi.ResourceSlice, plugin string, nodes int) {
	b.Helper()
	features := structured.Features{AdminAccess: true, PrioritizedList: true, PartitionableDevices: true,
		ConsumableCapacity: true, DeviceTaints: true}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}
	claims := []*resourceapi.ResourceClaim{s.claim(plugin)}
	var allocator structured.Allocator
	begin := processorTime(b)
	for b.Loop() {
		var err error
		if allocator, err = structured.NewAllocator(b.Context(), features, s.state(), s, all, expressions); err != nil {
			b.Fatal(err)
		}
	}
	perPod := float64((processorTime(b) - begin).Microseconds()) / float64(b.N)
	const tries = 3000
	runtime.GC()
	begin = processorTime(b)
	for range tries {
		if results, err := allocator.Allocate(b.Context(), node, claims); err != nil || len(results) != 1 {
			b.Fatalf("got allocations %v, %v, want one", results, err)
		}
	}
	perNode := float64((processorTime(b) - begin).Microseconds()) / tries
	// This is the number of nodes that kube-scheduler tries by default (without percentageOfNodesToScore) if all are
	// feasible.
	tried := float64(nodes) * float64(max(5, 50-nodes/125)) / 100
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(len(all)/nodes), "slices/node")
	b.ReportMetric((perPod+tried*perNode)/1000, "ms/whole-pod")
	b.ReportMetric(perPod, "µs/pod")
	b.ReportMetric(perNode, "µs/node")
}

// processorTime returns the CPU time that this process has used so far.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
