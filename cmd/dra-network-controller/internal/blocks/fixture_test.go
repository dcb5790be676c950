package blocks

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// cluster consists of a controller and an API server with the range r and the topology t, which uses one address per
// pod.
type cluster struct {
	*testing.T
	api    client.WithWatch
	clock  *testingclock.FakeClock // the time in every process
	wall   *testingclock.FakeClock // the controller's wall clock
	events *events.FakeRecorder
	r      *Reconciler
	uids   int
}

func newCluster(t *testing.T, spec string) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, resourceapi.AddToScheme,
		schedulingapi.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := &cluster{T: t, clock: testingclock.NewFakeClock(time.Unix(1_000_000, 0)),
		wall: testingclock.NewFakeClock(time.Unix(1_000_000, 0)), events: events.NewFakeRecorder(1000)}
	c.api = fake.NewClientBuilder().WithScheme(scheme).
		WithStatusSubresource(&v1alpha1.AddressRange{}, &v1alpha1.AddressBlock{}).Build()
	r := &v1alpha1.AddressRange{ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "range", Generation: 1}}
	c.must(yaml.UnmarshalStrict([]byte(spec), &r.Spec))
	c.must(c.api.Create(c.Context(), r))
	topology := &v1alpha1.NetworkTopology{ObjectMeta: metav1.ObjectMeta{Name: "t"}}
	topology.Spec.Steps = []v1alpha1.Step{{Name: "a", AddressRange: "r"}, {Name: "b"}}
	c.must(c.api.Create(c.Context(), topology))
	c.restart()
	return c
}

// restart simulates a takeover by another controller process, which starts with the given claims.
func (c *cluster) restart(claims ...*resourceapi.ResourceClaim) {
	start := c.clock.Now()
	c.r = &Reconciler{Client: c.api, Live: c.api, Events: c.events, Clock: c.wall,
		Elapsed: func() time.Duration { return c.clock.Since(start) }}
	for _, claim := range claims {
		c.r.claims().set(claim)
	}
}

func (c *cluster) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// reconcile runs the reconciler until nothing changes, and returns the requeue delay.
func (c *cluster) reconcile() time.Duration {
	c.Helper()
	before := ""
	for {
		result, err := c.r.Reconcile(c.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "r"}})
		c.must(err)
		now := c.blocks()
		if now == before {
			return result.RequeueAfter
		}
		before = now
	}
}

// node registers a node.
func (c *cluster) node(name string, labels ...string) *corev1.Node {
	c.Helper()
	c.uids++
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(fmt.Sprintf("%s#%d", name, c.uids)),
		Labels: map[string]string{}}}
	for _, label := range labels {
		node.Labels[label] = ""
	}
	c.must(c.api.Create(c.Context(), node))
	return node
}

// claim returns a claim that is allocated on a node for the given number of pods, uses topology t, and has the given
// addresses.
func (c *cluster) claim(name, node string, pods int, addresses ...string) *resourceapi.ResourceClaim {
	c.Helper()
	parameters, err := json.Marshal(map[string]any{"networkTopologyRef": map[string]string{"name": "t"}, "step": "a"})
	c.must(err)
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name),
			CreationTimestamp: metav1.Time{Time: c.wall.Now()}},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{
			Devices: resourceapi.DeviceAllocationResult{
				Results: []resourceapi.DeviceRequestAllocationResult{{Request: "net", Driver: v1alpha1.DriverName,
					Pool: node + "/eth1", Device: "eth1"}},
				Config: []resourceapi.DeviceAllocationConfiguration{{
					Source: resourceapi.AllocationConfigSourceClass,
					DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
						Driver: v1alpha1.DriverName, Parameters: runtime.RawExtension{Raw: parameters}}},
				}},
			}}},
	}
	for i := range pods {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor,
			resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: fmt.Sprint(i)})
	}
	if len(addresses) > 0 {
		claim.Status.Devices = []resourceapi.AllocatedDeviceStatus{{Driver: v1alpha1.DriverName,
			NetworkData: &resourceapi.NetworkDeviceData{IPs: addresses}}}
	}
	return claim
}

func (c *cluster) list() []v1alpha1.AddressBlock {
	c.Helper()
	var blocks v1alpha1.AddressBlockList
	c.must(c.api.List(c.Context(), &blocks))
	return blocks.Items
}

// blocks returns lines in the form "name node-UID cidrs", with the suffix "released" for released blocks.
func (c *cluster) blocks() string {
	c.Helper()
	var lines []string
	for _, block := range c.list() {
		line := fmt.Sprintf("%s %s %s", block.Name, block.Spec.NodeUID, strings.Join(block.Spec.CIDRs, " "))
		if block.Status.ReleasedAt != nil {
			line += " released"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func (c *cluster) expect(want ...string) {
	c.Helper()
	slices.Sort(want)
	if got := c.blocks(); got != strings.Join(want, "\n") {
		c.Fatalf("got blocks\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

func (c *cluster) addressRange() *v1alpha1.AddressRange {
	c.Helper()
	r := &v1alpha1.AddressRange{}
	c.must(c.api.Get(c.Context(), types.NamespacedName{Name: "r"}, r))
	return r
}

// condition returns one of the range's conditions in the form "status reason: message".
func (c *cluster) condition(kind string) string {
	c.Helper()
	for _, condition := range c.addressRange().Status.Conditions {
		if condition.Type == kind {
			return fmt.Sprintf("%s %s: %s", condition.Status, condition.Reason, condition.Message)
		}
	}
	return ""
}

// told returns the events recorded since the previous call.
func (c *cluster) told() []string {
	var told []string
	for {
		select {
		case event := <-c.events.Events:
			told = append(told, event)
		default:
			return told
		}
	}
}

func (c *cluster) delete(object client.Object) {
	c.Helper()
	c.must(c.api.Delete(context.WithoutCancel(c.Context()), object))
}
