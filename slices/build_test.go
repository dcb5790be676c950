package slices_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

func check(t *testing.T, result draslices.Result, want string) {
	t.Helper()
	if diff := cmp.Diff(strings.TrimSpace(want), strings.TrimSpace(summary(result))); diff != "" {
		t.Errorf("published (-want +got):\n%s", diff)
	}
}

func TestBridge(t *testing.T) {
	result := build(t, []discovery.Device{bridge("br-data")}, bridgePolicy)
	check(t, result, `
pool worker-1/br-data
  slice of 1
  device br-data shared dra.networking/ports=64/1
`)
	str := func(s string) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{StringValue: &s} }
	num := func(n int64) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{IntValue: &n} }
	yes, no := resourceapi.DeviceAttribute{BoolValue: ptr.To(true)},
		resourceapi.DeviceAttribute{BoolValue: ptr.To(false)}
	want := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		"dra.networking/type":           str("bridge"),
		"dra.networking/ifName":         str("br-data"),
		"dra.networking/interface":      str("br-data"),
		"dra.networking/bridgeName":     str("br-data"),
		"dra.networking/bridgeType":     str("linux"),
		"dra.networking/vlanFiltering":  yes,
		"dra.networking/mtu":            num(9000),
		"dra.networking/mac":            str("02:00:00:00:00:02"),
		"dra.networking/rdma":           no,
		"dra.networking/sriovCapable":   no,
		"dra.networking/exposurePolicy": str("policy-0"),
		"dra.networking/supportedCNIs":  str(",bridge,"),
		"cni.dra.networking/bridge":     yes,
	}
	if diff := cmp.Diff(want, result.Entries[0].Spec.Attributes); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
}

func TestSharedAndExclusiveEntriesOfOneCard(t *testing.T) {
	check(t, build(t, []discovery.Device{nic("eth1")}, macvlanPolicy, ipvlanPolicy, passthroughPolicy), `
pool worker-1/eth1
  set eth1-counters: ipvlans-capacity=4 macvlans-capacity=4
  slice of 3
  device eth1-ipvlan shared dra.networking/ipvlans=4/1 <- ipvlans-capacity=4 macvlans-capacity=4
  device eth1-macvlan shared dra.networking/macvlans=4/1 <- ipvlans-capacity=4 macvlans-capacity=4
  device eth1-passthrough <- ipvlans-capacity=4 macvlans-capacity=4
`)
}

func TestPhysicalAndVirtualFunctions(t *testing.T) {
	check(t, build(t, pf("enp3s0f0", 2), macvlanPolicy, passthroughPolicy, vfPolicy), `
pool worker-1/enp3s0f0
  set enp3s0f0-counters: bandwidth=25k exclusion-slots=3 macvlans-capacity=4
  slice of 4
  device enp3s0f0-macvlan shared dra.networking/macvlans=4/1 <- macvlans-capacity=4
  device enp3s0f0-passthrough <- bandwidth=25k exclusion-slots=3 macvlans-capacity=4
  device enp3s0f0v0 dra.networking/bandwidth=12500 <- bandwidth=12500 exclusion-slots=1
  device enp3s0f0v1 dra.networking/bandwidth=12500 <- bandwidth=12500 exclusion-slots=1
`)
}

func TestVirtualFunctionsOfAHiddenPhysicalFunction(t *testing.T) {
	check(t, build(t, pf("enp3s0f0", 1), vfPolicy), `
pool worker-1/enp3s0f0
  slice of 1
  device enp3s0f0v0 dra.networking/bandwidth=25k
`)
}

// If a physical function is shared but not offered as a whole, its virtual functions can be allocated in addition.
func TestVirtualFunctionsBesideSharedEntries(t *testing.T) {
	check(t, build(t, pf("enp3s0f0", 2), macvlanPolicy, vfPolicy), `
pool worker-1/enp3s0f0
  slice of 3
  device enp3s0f0-macvlan shared dra.networking/macvlans=4/1
  device enp3s0f0v0 dra.networking/bandwidth=12500
  device enp3s0f0v1 dra.networking/bandwidth=12500
`)
}

// If a virtual function is a port of a bridge on the host, the physical function cannot be allocated.
func TestEnslavedVirtualFunction(t *testing.T) {
	devices := pf("enp3s0f0", 2)
	devices[1].Master, devices[1].MasterKind = "br-data", "bridge"
	free := strings.Replace(vfPolicy, `"vf"'`, `"vf" && device.attributes["dra.networking"].masterBridge == ""'`, 1)
	check(t, build(t, devices, passthroughPolicy, free), `
pool worker-1/enp3s0f0
  set enp3s0f0-counters: bandwidth=25k exclusion-slots=2
  slice of 2
  device enp3s0f0-passthrough <- bandwidth=25k exclusion-slots=3
  device enp3s0f0v1 dra.networking/bandwidth=12500 <- bandwidth=12500 exclusion-slots=1
`)
	check(t, build(t, devices, passthroughPolicy, vfPolicy), `
pool worker-1/enp3s0f0
  set enp3s0f0-counters: bandwidth=25k exclusion-slots=3
  slice of 3
  device enp3s0f0-passthrough <- bandwidth=25k exclusion-slots=4
  device enp3s0f0v0 dra.networking/bandwidth=12500 <- bandwidth=12500 exclusion-slots=1
  device enp3s0f0v1 dra.networking/bandwidth=12500 <- bandwidth=12500 exclusion-slots=1
`)
}

func TestExclusiveEntriesOfOneCard(t *testing.T) {
	other := strings.NewReplacer("-passthrough", "-other").Replace(passthroughPolicy)
	check(t, build(t, []discovery.Device{nic("eth1")}, passthroughPolicy, other), `
pool worker-1/eth1
  set eth1-counters: exclusion-slots=1
  slice of 2
  device eth1-other <- exclusion-slots=1
  device eth1-passthrough <- exclusion-slots=1
`)
}

func TestCountersOfOneNameAreKeptApart(t *testing.T) {
	share := func(suffix string) string {
		return fmt.Sprintf(`
selector: {cel: 'true'}
exposure:
  deviceNameSuffix: %q
  allowMultipleAllocations: true
  capacity: {maxConn: {value: "4", requestPolicy: {default: "1"}}, users: {value: "2", requestPolicy: {default: "1"}}}
  supportedCNIPlugins: [{name: macvlan}]`, suffix)
	}
	check(t, build(t, []discovery.Device{nic("eth1")}, share("-a"), share(""), passthroughPolicy), `
pool worker-1/eth1
  set eth1-counters: maxconn-a-capacity-xcfbb0028=4 maxconn-capacity-xa646642e=4 users-a-capacity=2 users-capacity=2
  slice of 3
  device eth1 shared dra.networking/maxConn=4/1 dra.networking/users=2/1 <- maxconn-capacity-xa646642e=4 users-capacity=2
  device eth1-a shared dra.networking/maxConn=4/1 dra.networking/users=2/1 <- maxconn-a-capacity-xcfbb0028=4 users-a-capacity=2
  device eth1-passthrough <- maxconn-a-capacity-xcfbb0028=4 maxconn-capacity-xa646642e=4 users-a-capacity=2 users-capacity=2
`)
}

func TestMixedPolicy(t *testing.T) {
	check(t, build(t, []discovery.Device{nic("eth1")}, `
selector: {cel: 'true'}
exposure:
  allowMultipleAllocations: true
  capacity: {macvlans: {value: "64", requestPolicy: {default: "1"}}}
  supportedCNIPlugins: [{name: macvlan}, {name: host-device, exclusive: true}]`), `
pool worker-1/eth1
  set eth1-counters: macvlans-capacity=64
  slice of 2
  device eth1 shared dra.networking/macvlans=64/1 <- macvlans-capacity=64
  device eth1-exclusive dra.networking/macvlans=64 <- macvlans-capacity=64
`)
}

func TestSharedDevicesAlwaysHaveADefault(t *testing.T) {
	check(t, build(t, []discovery.Device{nic("eth1")}, `
selector: {cel: 'true'}
exposure: {allowMultipleAllocations: true, supportedCNIPlugins: [{name: macvlan}]}`, `
selector: {cel: 'true'}
exposure: {deviceNameSuffix: "-b", allowMultipleAllocations: true, capacity: {ports: {value: "8"}}, supportedCNIPlugins: [{name: bridge}]}`), `
pool worker-1/eth1
  slice of 2
  device eth1 shared dra.networking/shares=1M/1
  device eth1-b shared dra.networking/ports=8/1
remark policy policy-0: the number of claims that share a device is not limited: it is published with a counter "shares" of 1000000; add a counter to capacity to limit them
remark policy policy-1: capacity[ports] has no default request, so each claim takes 1: set requestPolicy.default
`)
}

func TestNames(t *testing.T) {
	check(t, build(t, []discovery.Device{nic("eth0.100"), nic("eth0_100"), nic("Eth0"), nic("eth0-100")},
		passthroughPolicy), `
pool worker-1/eth0-100
  slice of 1
  device eth0-100-passthrough
pool worker-1/eth0-100-x959ba6d7
  slice of 1
  device eth0-100-passthrough-xf4ad409c
pool worker-1/eth0-100-xb4a6e7c0
  slice of 1
  device eth0-100-passthrough-x0aa6db69
pool worker-1/eth0-x93c21662
  slice of 1
  device eth0-passthrough-x68754c9a
`)
}

// Entry names collide if the suffix from one policy is the suffix from another policy followed by -exclusive.
func TestDuplicateNames(t *testing.T) {
	check(t, build(t, []discovery.Device{nic("eth1")}, `
selector: {cel: 'true'}
exposure:
  allowMultipleAllocations: true
  capacity: {macvlans: {value: "64", requestPolicy: {default: "1"}}}
  supportedCNIPlugins: [{name: macvlan}, {name: host-device, exclusive: true}]`, `
selector: {cel: 'true'}
exposure: {deviceNameSuffix: "-exclusive", supportedCNIPlugins: [{name: host-device, exclusive: true}]}`), `
pool worker-1/eth1
  set eth1-counters: macvlans-capacity=64
  slice of 2
  device eth1 shared dra.networking/macvlans=64/1 <- macvlans-capacity=64
  device eth1-exclusive dra.networking/macvlans=64 <- macvlans-capacity=64
problem policy policy-1: device eth1: its entry is not published: policy policy-0 already gives an entry the name "eth1-exclusive": change deviceNameSuffix
`)
}

func TestManyVirtualFunctions(t *testing.T) {
	result := build(t, pf("enp3s0f0", 130), passthroughPolicy, vfPolicy)
	pool := result.Resources.Pools["worker-1/enp3s0f0"]
	var sizes []int
	for _, slice := range pool.Slices {
		sizes = append(sizes, len(slice.Devices))
	}
	if diff := cmp.Diff([]int{0, 64, 64, 3}, sizes); diff != "" {
		t.Errorf("devices in slices (-want +got):\n%s", diff)
	}
	if last := pool.Slices[3].Devices[2].Name; last != "enp3s0f0v129" {
		t.Errorf("the last device is %s, want enp3s0f0v129", last)
	}
}

func TestPluginsThatAreNotInstalled(t *testing.T) {
	decision := policy.Resolve(discovery.Facts{Devices: pf("enp3s0f0", 1)}, policies(t, vfPolicy), policy.Node{})
	result, err := draslices.Build("worker-1", decision, draslices.Features{CNIBinaries: sets.New("host-device")})
	if err != nil {
		t.Fatal(err)
	}
	attributes := result.Entries[0].Spec.Attributes
	if _, ok := attributes["cni.dra.networking/sriov"]; ok ||
		attributes["cni.dra.networking/host_device"].BoolValue == nil {
		t.Errorf("unexpected attributes: %v", attributes)
	}
	if got := *attributes["dra.networking/supportedCNIs"].StringValue; got != ",host-device," {
		t.Errorf("supportedCNIs = %q, want only host-device", got)
	}
	if len(result.Problems) != 1 || !strings.Contains(result.Problems[0].String(), "sriov is not installed") {
		t.Errorf("unexpected problems: %v", result.Problems)
	}
}

func TestPluginsThatAreMissing(t *testing.T) {
	decision := policy.Resolve(discovery.Facts{Devices: pf("enp3s0f0", 1)}, policies(t, vfPolicy), policy.Node{})
	result, err := draslices.Build("worker-1", decision, draslices.Features{CNIBinaries: sets.New("host-device")})
	if err != nil || len(result.Problems) != 1 || !strings.HasSuffix(result.Problems[0].String(),
		": install the plugin or remove it from supportedCNIPlugins") {
		t.Errorf("problems = %v (%v), want one that suggests to install the plugin", result.Problems, err)
	}
}

func TestPluginsThatCannotWork(t *testing.T) {
	decision := policy.Resolve(discovery.Facts{Devices: pf("enp3s0f0", 1)}, policies(t, vfPolicy), policy.Node{})
	result, err := draslices.Build("worker-1", decision, draslices.Features{
		CNIBinaries: sets.New("host-device", "sriov"), UnusableCNIs: map[string]string{"sriov": "no such kernel"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := *result.Entries[0].Spec.Attributes["dra.networking/supportedCNIs"].StringValue; got != ",host-device," {
		t.Errorf("supportedCNIs = %q, want only host-device", got)
	}
	if len(result.Problems) != 1 || !strings.Contains(result.Problems[0].String(),
		"CNI plugin sriov cannot work on the node, so no device is offered for it on the node: no such kernel") {
		t.Errorf("unexpected problems: %v", result.Problems)
	}
}

// budget returns a policy with n additional attributes.
func budget(n int) string {
	var attributes []string
	for i := range n {
		attributes = append(attributes, fmt.Sprintf("example.com/a%d: %d", i, i))
	}
	return fmt.Sprintf(`
selector: {cel: 'true'}
exposure:
  supportedCNIPlugins: [{name: host-device, exclusive: true}]
  additionalAttributes: {%s}`, strings.Join(attributes, ", "))
}

func TestAttributeBudget(t *testing.T) {
	has := func(n int, rdma ...string) string {
		device := nic("eth1")
		device.RDMADevices = rdma
		result := build(t, []discovery.Device{device}, budget(n))
		var got []string
		for _, e := range result.Entries {
			for _, name := range []resourceapi.QualifiedName{policy.ExposurePolicy, policy.SupportedCNIs,
				policy.LegacyPCIeRoot, policy.RDMADevice} {
				if _, ok := e.Spec.Attributes[name]; ok {
					got = append(got, string(name))
				}
			}
			got = append(got, fmt.Sprint(len(e.Spec.Attributes)))
		}
		for _, p := range result.Problems {
			got = append(got, p.String())
		}
		return strings.Join(got, " ")
	}
	for n, want := range map[int]string{
		12: "dra.networking/exposurePolicy dra.networking/supportedCNIs device.k8s.io/pcieRoot 32",
		13: "dra.networking/supportedCNIs device.k8s.io/pcieRoot 32",
		14: "device.k8s.io/pcieRoot 32",
		15: "32",
		16: "policy policy-0: device eth1: its entry eth1 is not published: it has 33 attributes and capacities, 17 " +
			"of them from the policy, and the limit is 32: remove additional or requested attributes, plugins or " +
			"counters",
	} {
		if diff := cmp.Diff(want, has(n)); diff != "" {
			t.Errorf("%d additional attributes (-want +got):\n%s", n, diff)
		}
	}
	for n, want := range map[int]string{ // rdmaDevice is dropped before the limit is exceeded
		14: "dra.networking/rdmaDevice 32",
		15: "32",
	} {
		if diff := cmp.Diff(want, has(n, "mlx5_0")); diff != "" {
			t.Errorf("%d additional attributes of an RDMA device (-want +got):\n%s", n, diff)
		}
	}
}

func TestBuildIsDeterministic(t *testing.T) {
	devices := append(pf("enp3s0f0", 20), nic("eth1"), bridge("br-data"), nic("eth0.100"))
	specs := []string{macvlanPolicy, ipvlanPolicy, passthroughPolicy, vfPolicy, bridgePolicy}
	list := policies(t, specs...)
	want := build(t, devices, specs...)
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		random.Shuffle(len(devices), func(i, j int) { devices[i], devices[j] = devices[j], devices[i] })
		random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		decision := policy.Resolve(discovery.Facts{Devices: devices}, list, policy.Node{Name: "worker-1"})
		random.Shuffle(len(decision.Devices), func(i, j int) {
			decision.Devices[i], decision.Devices[j] = decision.Devices[j], decision.Devices[i]
		})
		got, err := draslices.Build("worker-1", decision, features())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d (-want +got):\n%s", seed, diff)
		}
	}
}

func TestBadNodeName(t *testing.T) {
	if _, err := draslices.Build("Worker_1", policy.Decision{}, features()); err == nil {
		t.Error("Build accepted an invalid node name")
	}
}
