package simulate

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// policies expose all mutually exclusive uses of a NIC with virtual functions.
const policies = `
- metadata: {name: vfs}
  spec:
    action: expose
    selector: {cel: 'device.attributes["dra.networking"].type == "vf"'}
    exposure: {supportedCNIPlugins: [{name: sriov, exclusive: true}]}
- metadata: {name: macvlans}
  spec:
    action: expose
    selector: {cel: 'device.attributes["dra.networking"].type == "pf"'}
    exposure:
      deviceNameSuffix: -macvlan
      allowMultipleAllocations: true
      exclusionGroup: handler
      capacity: {macvlans: {value: "4", requestPolicy: {default: "1", validRange: {min: "1", step: "1"}}}}
      supportedCNIPlugins: [{name: macvlan}]
- metadata: {name: ipvlans}
  spec:
    action: expose
    selector: {cel: 'device.attributes["dra.networking"].type == "pf"'}
    exposure:
      deviceNameSuffix: -ipvlan
      allowMultipleAllocations: true
      exclusionGroup: handler
      capacity: {ipvlans: {value: "4", requestPolicy: {default: "1"}}}
      supportedCNIPlugins: [{name: ipvlan}]
- metadata: {name: whole}
  spec:
    action: expose
    selector: {cel: 'device.attributes["dra.networking"].type == "pf"'}
    exposure: {supportedCNIPlugins: [{name: host-device, exclusive: true}]}
`

// twoCards returns a cluster with one node and a class for every CNI plugin. The node has two NICs with four virtual
// functions each.
func twoCards(t *testing.T) Cluster {
	t.Helper()
	var given []policyapi.DeviceExposurePolicy
	if err := yaml.UnmarshalStrict([]byte(policies), &given); err != nil {
		t.Fatal(err)
	}
	facts, err := discovery.Read(t.Context(), discoverytest.Machine(2, 4).Sources())
	if err != nil {
		t.Fatal(err)
	}
	plugins := []string{"sriov", "macvlan", "ipvlan", "host-device"}
	result, err := draslices.Build("worker-1", policy.Resolve(facts, given, policy.Node{Name: "worker-1"}),
		draslices.Features{CNIBinaries: sets.New(plugins...)})
	if err != nil || len(result.Problems) > 0 {
		t.Fatal(err, result.Problems)
	}
	cluster := Cluster{}
	name := "worker-1"
	for pool, resources := range result.Resources.Pools {
		for i, slice := range resources.Slices {
			cluster.Slices = append(cluster.Slices,
				&resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(pool, i)},
					Spec: resourceapi.ResourceSliceSpec{
						Driver: policyapi.AttributeDomain, NodeName: &name, Devices: slice.Devices,
						SharedCounters: slice.SharedCounters,
						Pool: resourceapi.ResourcePool{Name: pool, Generation: 1,
							ResourceSliceCount: int64(len(resources.Slices))},
					}})
		}
	}
	slices.SortFunc(cluster.Slices,
		func(a, b *resourceapi.ResourceSlice) int { return strings.Compare(a.Name, b.Name) })
	cluster.Nodes = NodesOf(cluster.Slices)
	for _, plugin := range plugins {
		expression := fmt.Sprintf(`device.attributes["cni.dra.networking"].?%s.orValue(false)`,
			policyapi.CNIAttribute(plugin))
		cluster.Classes = append(cluster.Classes, &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: plugin},
			Spec: resourceapi.DeviceClassSpec{
				Selectors: []resourceapi.DeviceSelector{
					{CEL: &resourceapi.CELDeviceSelector{Expression: expression}},
				}}})
	}
	return cluster
}

// asking returns a claim with the given requests and the API server's defaults.
func asking(t *testing.T, name, requests string) *resourceapi.ResourceClaim {
	t.Helper()
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name,
		UID: types.UID(name)}}
	if err := errors.Join(yaml.UnmarshalStrict([]byte(requests), &claim.Spec.Devices), Complete(claim)); err != nil {
		t.Fatal(err)
	}
	return claim
}

// randomClaim returns a claim with one to three requests.
func randomClaim(t *testing.T, random *rand.Rand, name string) *resourceapi.ResourceClaim {
	t.Helper()
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name,
		UID: types.UID(name)}}
	for i := range 1 + random.IntN(2) {
		exactly := &resourceapi.ExactDeviceRequest{DeviceClassName: []string{"sriov", "sriov", "sriov", "macvlan",
			"macvlan", "ipvlan", "host-device"}[random.IntN(7)]}
		if exactly.DeviceClassName == "sriov" {
			exactly.Count = 1 + random.Int64N(3)
		}
		if exactly.DeviceClassName == "macvlan" && random.IntN(2) == 0 {
			exactly.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
				"dra.networking/macvlans": *resource.NewQuantity(1+random.Int64N(5), resource.DecimalSI)}}
		}
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests,
			resourceapi.DeviceRequest{Name: fmt.Sprintf("r%d", i), Exactly: exactly})
	}
	if random.IntN(3) == 0 {
		attribute := resourceapi.FullyQualifiedName("dra.networking/pfName")
		claim.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &attribute}}
	}
	if err := Complete(claim); err != nil {
		t.Fatal(err)
	}
	return claim
}

// For any set of existing claims, the refusal names exactly the blocking claims: the new claim fits if all of them are
// removed, but not if any one of them remains. If the refusal names no claims, the new claim does not even fit on an
// empty node.
func TestObstaclesAreRight(t *testing.T) {
	cluster := twoCards(t)
	fitted, refused, named := 0, 0, 0
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // must be reproducible
		simulator := New(cluster)
		for i := range 12 {
			claim := randomClaim(t, random, fmt.Sprintf("c%d", i))
			verdict, err := simulator.Try(t.Context(), claim)
			if err != nil {
				t.Fatalf("seed %d, claim %d: %v", seed, i, err)
			}
			if len(verdict.Nodes) > 0 {
				fitted++
				simulator.Reserve(claim.Name, []*resourceapi.ResourceClaim{claim}, verdict.Results)
				continue
			}
			refused++
			refusal := verdict.Refusals[0]
			if refusal.Reason == "" {
				t.Fatalf("seed %d, claim %d: refused without a reason", seed, i)
			}
			fits := func(without ...string) bool {
				results, err := simulator.allocate(t.Context(), cluster.Nodes[0], []*resourceapi.ResourceClaim{claim},
					slices.DeleteFunc(slices.Clone(simulator.cluster.Claims),
						func(c *resourceapi.ResourceClaim) bool {
							return slices.Contains(without, c.Name)
						}))
				if err != nil {
					t.Fatal(err)
				}
				return results != nil
			}
			if len(refusal.Taken) == 0 {
				var all []string
				for _, c := range simulator.cluster.Claims {
					all = append(all, c.Name)
				}
				if fits(all...) {
					t.Fatalf("seed %d, claim %d: no holders reported, yet the claim fits on the empty node: %+v", seed,
						i, refusal)
				}
				continue
			}
			named++
			if len(refusal.Holders) != len(refusal.Taken) || len(refusal.Release) > 0 {
				t.Errorf("seed %d, claim %d: inconsistent refusal %+v", seed, i, refusal)
			}
			if !fits(refusal.Taken...) {
				t.Fatalf("seed %d, claim %d: the claim does not fit even without %v", seed, i, refusal.Taken)
			}
			for _, kept := range refusal.Taken {
				rest := slices.DeleteFunc(slices.Clone(refusal.Taken), func(name string) bool { return name == kept })
				if fits(rest...) {
					t.Fatalf("seed %d, claim %d: %s is reported as in the way but is not, among %v", seed, i, kept,
						refusal.Taken)
				}
			}
		}
	}
	t.Logf("%d claims fit, %d were refused, %d of them because of other claims", fitted, refused, named)
	if share := 100 * refused / (fitted + refused); share < 30 || share > 70 || named < 50 {
		t.Error("the random claims are too one-sided")
	}
}

// A refusal explains which requests cannot be satisfied even on an empty node.
func TestRefusalsOfAnEmptyNode(t *testing.T) {
	cluster := twoCards(t)
	for requests, want := range map[string]string{
		`requests: [{name: r, exactly: {deviceClassName: sriov, count: 9}}]`:                                  "request r of claim ns/c needs 9 of DeviceClass sriov, and only 8 of the node's devices match",
		`requests: [{name: r, exactly: {deviceClassName: sriov, selectors: [{cel: {expression: "false"}}]}}]`: "the request's own selectors are false for all 8 devices of that class",
		`requests: [{name: r, exactly: {deviceClassName: host-device, selectors: [{cel: {expression: ` +
			`'device.driver == "x"'}}]}}]`: "the request's own selectors are false for all 2 devices of that class",
		`{requests: [{name: r, exactly: {deviceClassName: sriov, count: 5}}], constraints: [{matchAttribute: ` +
			`dra.networking/pfName}]}`: "no devices of the node meet constraint 0 of claim ns/c, that " +
			"dra.networking/pfName of all requests be the same; without it the claims would fit",
		`requests: [{name: r, exactly: {deviceClassName: macvlan, capacity: {requests: {dra.networking/macvlans: ` +
			`"5"}}}}]`: "no device of the node has as much capacity as request r of claim ns/c needs " +
			"(dra.networking/macvlans=5)",
		`requests: [{name: a, exactly: {deviceClassName: host-device, count: 2}}, {name: b, exactly: ` +
			`{deviceClassName: sriov}}]`: "cannot satisfy the claims together",
	} {
		verdict, err := New(cluster).Try(t.Context(), asking(t, "c", requests))
		if err != nil || len(verdict.Refusals) != 1 || !strings.Contains(verdict.Refusals[0].Reason, want) {
			t.Errorf("%s: error = %v, verdict %+v, want %q", requests, err, verdict, want)
		}
	}
	if _, err := New(cluster).Try(t.Context(),
		asking(t, "c", `requests: [{name: r, exactly: {deviceClassName: nothing}}]`)); err == nil ||
		!strings.Contains(err.Error(), "DeviceClass nothing does not exist") {
		t.Errorf("error = %v, want one that says that the DeviceClass does not exist", err)
	}
}

// A tainted device is not allocated to a request without a toleration, and the refusal names the taint.
func TestTaintedDevices(t *testing.T) {
	cluster := twoCards(t)
	for _, slice := range cluster.Slices {
		for i := range slice.Spec.Devices {
			slice.Spec.Devices[i].Taints = []resourceapi.DeviceTaint{{Key: "dra.networking/no-carrier",
				Effect: resourceapi.DeviceTaintEffectNoSchedule}}
		}
	}
	verdict, err := New(cluster).Try(t.Context(),
		asking(t, "c", `requests: [{name: r, exactly: {deviceClassName: host-device}}]`))
	if err != nil || len(verdict.Refusals) != 1 || !strings.Contains(verdict.Refusals[0].Reason, "are tainted: ") ||
		!strings.Contains(verdict.Refusals[0].Reason, "(dra.networking/no-carrier)") {
		t.Errorf("error = %v, verdict %+v, want a refusal because of the taint", err, verdict)
	}
	verdict, err = New(cluster).Try(t.Context(),
		asking(t, "c",
			`requests: [{name: r, exactly: {deviceClassName: host-device, tolerations: [{operator: Exists}]}}]`))
	if err != nil || len(verdict.Nodes) != 1 {
		t.Errorf("error = %v, verdict %+v, want one node", err, verdict)
	}
}

// If there are pods, a template that none of them uses does not take up any devices.
func TestTemplatesWithoutPods(t *testing.T) {
	const template = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: lan}
spec: {spec: {devices: {requests: [{name: net, exactly: {deviceClassName: lan}}]}}}
---
`
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}"
	for input, want := range map[string]string{
		template: "a claim of template default/lan", template + pod: "pod default/p",
	} {
		m, err := parse([]string{"-"}, strings.NewReader(input), "default")
		if err == nil {
			err = m.arrangeTrials()
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(m.trials) != 1 || m.trials[0].title != want {
			t.Errorf("got trials %+v, want one titled %s", m.trials, want)
		}
	}
}
