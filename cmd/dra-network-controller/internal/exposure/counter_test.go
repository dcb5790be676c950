package exposure_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/exposure"
	chainapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// publishedSlice returns a slice from the pool NODE/POOL. Devices have the form NAME=POLICY or NAME. A suffix after a
// dot distinguishes the entries for one device, and a trailing ! adds a taint.
func publishedSlice(pool string, generation int64, devices ...string) *resourceapi.ResourceSlice {
	node, _, _ := strings.Cut(pool, "/")
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", strings.ReplaceAll(pool, "/", "-"), generation)},
		Spec: resourceapi.ResourceSliceSpec{Driver: v1alpha1.AttributeDomain, NodeName: ptr.To(node),
			Pool: resourceapi.ResourcePool{Name: pool, Generation: generation}}}
	for _, device := range devices {
		device, tainted := strings.CutSuffix(device, "!")
		name, named, _ := strings.Cut(device, "=")
		link, _, _ := strings.Cut(name, ".")
		d := resourceapi.Device{Name: strings.ReplaceAll(name, ".", "-"),
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"dra.networking/ifName": {StringValue: &link},
				"dra.networking/mtu":    {IntValue: ptr.To[int64](1500)},
			}}
		switch {
		case strings.HasPrefix(name, "bare"): // on a node without the policy's plugins
		case strings.HasPrefix(name, "eth0"):
			d.Attributes["dra.networking/supportedCNIs"] = resourceapi.DeviceAttribute{StringValue: ptr.To(",macvlan,")}
		default:
			d.Attributes["cni.dra.networking/macvlan"] = resourceapi.DeviceAttribute{BoolValue: ptr.To(true)}
		}
		if named != "" {
			d.Attributes[policy.ExposurePolicy] = resourceapi.DeviceAttribute{StringValue: &named}
		}
		if tainted {
			d.Taints = []resourceapi.DeviceTaint{{Key: "dra.networking/unavailable", Value: "withdrawn"}}
		}
		slice.Spec.Devices = append(slice.Spec.Devices, d)
	}
	return slice
}

func TestCount(t *testing.T) {
	published := []*resourceapi.ResourceSlice{
		publishedSlice("b/eth0", 1, "eth0=shared"),
		publishedSlice("a/eth1", 4, "eth1.x=shared"),
		publishedSlice("a/eth0", 1, "eth0=shared", "eth0.whole=shared", "eth0.other=whole"),
		publishedSlice("a/eth1", 3, "eth1.x=shared", "old=shared", "old"), // the pool has a newer generation
		publishedSlice("a/eth1", 2, "older=shared"),
		publishedSlice("c/eth9", 1, "eth8", "eth9!", "eth7=shared!", "bare=shared"),
		publishedSlice("d/bare", 1, "bare=shared"),
	}
	wantByPolicy := map[string]exposure.Offers{"shared": {Devices: 4, Nodes: 3}, "whole": {Devices: 1, Nodes: 1}}
	for name, transform := range map[string]bool{"as they are": false, "as the cache has them": true} {
		t.Run(name, func(t *testing.T) {
			var slices []*resourceapi.ResourceSlice
			for _, slice := range published {
				slice = slice.DeepCopy()
				if transform {
					reduced, err := exposure.Transform(slice)
					if err != nil {
						t.Fatal(err)
					}
					slice = reduced.(*resourceapi.ResourceSlice)
					if _, kept := slice.Spec.Devices[0].Attributes["dra.networking/mtu"]; kept {
						t.Error("Transform kept an unused attribute")
					}
				}
				slices = append(slices, slice)
			}
			byPolicy, unnamed := exposure.Count(slices)
			if diff := cmp.Diff(wantByPolicy, byPolicy); diff != "" {
				t.Errorf("wrong counts by policy (-want +got):\n%s", diff)
			}
			if unnamed != 1 { // eth8; eth9 is withdrawn
				t.Errorf("%d devices without a policy, want 1", unnamed)
			}
		})
	}
}

// Transform does not always receive an object: if an object was deleted, possibly only its name is known.
func TestTransformOfSomethingElse(t *testing.T) {
	if got, err := exposure.Transform("name"); got != "name" || err != nil {
		t.Errorf("got %v, %v, want the name unchanged and no error", got, err)
	}
}

// offersCluster is a fake API server that counts writes.
type offersCluster struct {
	t      *testing.T
	api    client.Client
	writes int
}

func newOffersCluster(t *testing.T, objects ...client.Object) *offersCluster {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, resourceapi.AddToScheme,
		chainapi.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := &offersCluster{t: t}
	c.api = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.DeviceExposurePolicy{}).
		WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, api client.Client, sub string, object client.Object,
			options ...client.SubResourceUpdateOption) error {
			c.writes++
			return api.SubResource(sub).Update(ctx, object, options...)
		},
	}).Build()
	return c
}

// count runs the counter, and returns the number of writes and the status of the policy p.
func (c *offersCluster) count() string {
	c.t.Helper()
	c.writes = 0
	counter := &exposure.Counter{Client: c.api}
	result, err := counter.Reconcile(c.t.Context(), reconcile.Request{})
	if err != nil || result.RequeueAfter < time.Minute { // it counts again after some time, in case the CRD was too old
		c.t.Fatal(result, err)
	}
	var p v1alpha1.DeviceExposurePolicy
	if err := c.api.Get(c.t.Context(), types.NamespacedName{Name: "p"}, &p); err != nil {
		c.t.Fatal(err)
	}
	number := func(n *int32) string {
		if n == nil {
			return "-"
		}
		return fmt.Sprint(*n)
	}
	text := fmt.Sprintf("%d writes, %s devices, %s nodes", c.writes, number(p.Status.Devices), number(p.Status.Nodes))
	for _, condition := range p.Status.Conditions {
		text += fmt.Sprintf("; %s=%s %s of %d: %s", condition.Type, condition.Status, condition.Reason,
			condition.ObservedGeneration, condition.Message)
	}
	return text
}

func (c *offersCluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *offersCluster) expect(state, want string) {
	c.t.Helper()
	if diff := cmp.Diff(want, c.count()); diff != "" {
		c.t.Errorf("%s: wrong state (-want +got):\n%s", state, diff)
	}
}

func (c *offersCluster) edit(generation int64, spec string) {
	c.t.Helper()
	var p v1alpha1.DeviceExposurePolicy
	c.must(c.api.Get(c.t.Context(), types.NamespacedName{Name: "p"}, &p))
	p.Generation, p.Spec = generation, newPolicy(c.t, 0, spec).Spec
	c.must(c.api.Update(c.t.Context(), &p))
}

func TestDevicesOffered(t *testing.T) {
	const (
		exposes = `{action: expose, selector: {cel: "device.attributes['dra.networking'].type == 'nic'"}, ` +
			`exposure: {supportedCNIPlugins: [{name: sriov, exclusive: true}]}}`
		hint = `; "kubectl netdra policies list p --all-nodes" shows its effect on each node`
	)
	c := newOffersCluster(t, newPolicy(t, 1, exposes))
	const none = "no node offers a device because of this policy: nodeSelector and selector match none, " +
		"other policies take precedence for the matching devices, or the nodes lack its CNI plugins" + hint
	c.expect("nothing is published", "1 writes, 0 devices, 0 nodes; DevicesOffered=False NoDevices of 1: "+none)
	c.expect("the same again", "0 writes, 0 devices, 0 nodes; DevicesOffered=False NoDevices of 1: "+none)

	c.must(c.api.Create(t.Context(), publishedSlice("b/eth0", 1, "eth0=other")))
	c.expect("others offer", "0 writes, 0 devices, 0 nodes; DevicesOffered=False NoDevices of 1: "+none)

	slice := publishedSlice("a/eth0", 1, "eth0=p", "eth1=p")
	c.must(c.api.Create(t.Context(), slice))
	c.expect("offered", "1 writes, 2 devices, 1 nodes; DevicesOffered=True Offered of 1: devices: 2, nodes: 1"+hint)

	c.edit(2, `{action: expose, selector: {cel: "true &&"}, exposure: {supportedCNIPlugins: `+
		`[{name: sriov, exclusive: true}]}}`)
	c.expect("not valid, and a node did not see it yet",
		"1 writes, 2 devices, 1 nodes; DevicesOffered=True Offered of 2: devices: 2, nodes: 1"+hint)
	c.must(c.api.Delete(t.Context(), slice))
	c.expect("not valid", "1 writes, 0 devices, 0 nodes; DevicesOffered=False NotAccepted of 2: "+
		"the policy is not accepted, so it offers no devices: see the condition Accepted"+hint)

	c.edit(3, exposes)
	old := publishedSlice("c/eth0", 1, "eth0", "eth1")
	c.must(c.api.Create(t.Context(), old))
	c.expect("a driver that is older", "1 writes, - devices, - nodes; DevicesOffered=Unknown PoliciesNotNamed of 3: "+
		"no device names this policy, but some devices do not name their policy (2): their driver is older than "+
		"the controller, the name of their policy has more than 64 bytes, or they already have the maximum "+
		"number of attributes"+hint)

	c.edit(4, `{action: exclude, selector: {cel: "true"}}`)
	c.expect("hidden devices are not published", "1 writes, - devices, - nodes")
}

// If a policy has changed since it was read, the count is repeated soon afterward, and the status of the other policies
// is still written.
func TestCountAgainAfterAConflict(t *testing.T) {
	const exposes = `{action: expose, selector: {cel: "true"}, exposure: {supportedCNIPlugins: [{name: sriov}]}}`
	first, second := newPolicy(t, 1, exposes), newPolicy(t, 1, exposes)
	first.Name, second.Name = "a", "b"
	c := newOffersCluster(t, first, second)
	stale := interceptor.NewClient(c.api.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, api client.WithWatch, list client.ObjectList,
			options ...client.ListOption) error {
			if err := api.List(ctx, list, options...); err != nil {
				return err
			}
			if policies, ok := list.(*v1alpha1.DeviceExposurePolicyList); ok {
				for i := range policies.Items {
					if policies.Items[i].Name == "a" {
						policies.Items[i].ResourceVersion = "1"
					}
				}
			}
			return nil
		},
	})
	result, err := (&exposure.Counter{Client: stale}).Reconcile(t.Context(), reconcile.Request{})
	if err != nil || result.RequeueAfter == 0 || result.RequeueAfter > time.Second {
		t.Errorf("got %v, error = %v, want another look within 1s", result, err)
	}
	for name, written := range map[string]bool{"a": false, "b": true} {
		var p v1alpha1.DeviceExposurePolicy
		c.must(c.api.Get(t.Context(), types.NamespacedName{Name: name}, &p))
		if (p.Status.Devices != nil) != written {
			t.Errorf("policy %s: wrong status %v", name, p.Status)
		}
	}
}
