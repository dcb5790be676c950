package slices_test

import (
	"encoding/json"
	"fmt"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// big returns a node with n virtual functions, up to 128 per physical function, and the policies of a typical node.
func big(n int) ([]discovery.Device, []string) {
	var devices []discovery.Device
	for i := 0; n > 0; i++ {
		vfs := min(n, 128)
		devices = append(devices, pf(fmt.Sprintf("enp%02ds0", i), vfs)...)
		n -= vfs
	}
	return devices, []string{macvlanPolicy, ipvlanPolicy, passthroughPolicy, vfPolicy}
}

func sizes(b *testing.B, run func(*testing.B, []discovery.Device, []v1alpha1.DeviceExposurePolicy, draslices.Result)) {
	for _, n := range []int{16, 128, 512, 1024, 2048} {
		b.Run(fmt.Sprintf("vfs=%d", n), func(b *testing.B) {
			devices, specs := big(n)
			b.ReportAllocs()
			run(b, devices, policies(b, specs...), build(b, devices, specs...))
		})
	}
}

func BenchmarkResolve(b *testing.B) {
	sizes(b, func(b *testing.B, devices []discovery.Device, list []v1alpha1.DeviceExposurePolicy, _ draslices.Result) {
		for b.Loop() {
			policy.Resolve(discovery.Facts{Devices: devices}, list, policy.Node{Name: "worker-1"})
		}
	})
}

func BenchmarkBuild(b *testing.B) {
	sizes(b, func(b *testing.B, devices []discovery.Device, list []v1alpha1.DeviceExposurePolicy,
		result draslices.Result) {
		decision := policy.Resolve(discovery.Facts{Devices: devices}, list, policy.Node{Name: "worker-1"})
		bytes := 0
		for name, pool := range result.Resources.Pools {
			for _, slice := range pool.Slices {
				data, err := json.Marshal(sliceSpec(name, len(pool.Slices), slice))
				if err != nil {
					b.Fatal(err)
				}
				bytes += len(data)
			}
		}
		all := features()
		for b.Loop() {
			if _, err := draslices.Build("worker-1", decision, all); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(bytes), "published-bytes")
	})
}

// BenchmarkAllocate measures how long the scheduler takes to process one node for a pod with one virtual function. Each
// virtual function is published either once or in two bandwidth tiers. On the free node, the allocated function is in
// the first pool; on the other node, all functions are in use except the last one in the last pool.
func BenchmarkAllocate(b *testing.B) {
	for _, kind := range []string{"whole", "tiers"} {
		for _, where := range []string{"first", "last"} {
			b.Run(kind+"/"+where, func(b *testing.B) {
				sizes(b, func(b *testing.B, devices []discovery.Device, _ []v1alpha1.DeviceExposurePolicy,
					result draslices.Result) {
					wanted := wish{plugin: "sriov"}
					if kind == "tiers" {
						tiers := vf(
							`{supportedCNIPlugins: [{name: sriov, exclusive: true}], capacity: {bandwidth: ` +
								`{value: "25000", requestPolicy: {default: "100", validValues: ["100", "190"]}}}}`,
						)
						result = build(b, devices, macvlanPolicy, ipvlanPolicy, passthroughPolicy, tiers)
						wanted.stock, wanted.amount = "bandwidth", 190
					}
					allocateOne(b, result, wanted, where == "last")
				})
			})
		}
	}
}

// allocateOne allocates an entry for a virtual function in each iteration of the benchmark.
func allocateOne(b *testing.B, result draslices.Result, wanted wish, last bool) {
	s := newScheduler(b, result)
	taken := map[discovery.IfName]draslices.Entry{} // the first entry of each function
	var only draslices.Entry                        // the last entry of the last function
	for _, e := range result.Entries {
		if _, ok := taken[e.Device.Name]; !ok && e.Device.PFName != "" {
			taken[e.Device.Name] = e
		}
		only = e
	}
	delete(taken, only.Device.Name)
	if last {
		for _, e := range taken {
			s.claims[e.Name] = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
				Results: []resourceapi.DeviceRequestAllocationResult{{Driver: v1alpha1.AttributeDomain, Pool: e.Pool,
					Device: e.Name}}}}
		}
	}
	for b.Loop() {
		devices, keys := s.cycle(s.wishing(testClaim{1, []wish{wanted}}))
		if len(devices) != 1 || last && devices[0] != only.Name {
			b.Fatalf("got devices %v, want one", devices)
		}
		s.release(keys...)
	}
}
