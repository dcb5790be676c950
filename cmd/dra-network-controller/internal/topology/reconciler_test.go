package topology

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// cluster is an API server with one topology, "net", and the reconciler under test.
type cluster struct {
	t      *testing.T
	api    client.Client
	r      *Reconciler
	writes []string // the writes since the last check
	refuse string   // creating the class with this name fails
	reason error    // with this error
	events *events.FakeRecorder
}

const netSteps = `
metadata: {name: net}
spec:
  steps:
  - {name: a, type: macvlan, selector: {cel: "true"}}
  - {name: b, type: host-device, selector: {cel: "true"}}
`

func newCluster(t *testing.T, objects ...client.Object) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(resourceapi.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, events: events.NewFakeRecorder(100)}
	c.api = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.NetworkTopology{}).WithObjects(objects...).Build()
	watched := interceptor.NewClient(c.api.(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, api client.WithWatch, object client.Object,
			options ...client.CreateOption) error {
			if object.GetName() == c.refuse {
				return c.reason
			}
			c.writes = append(c.writes, "create "+object.GetName())
			return api.Create(ctx, object, options...)
		},
		Patch: func(ctx context.Context, api client.WithWatch, object client.Object, patch client.Patch,
			options ...client.PatchOption) error {
			c.writes = append(c.writes, "patch "+object.GetName())
			return api.Patch(ctx, object, patch, options...)
		},
		Delete: func(ctx context.Context, api client.WithWatch, object client.Object,
			options ...client.DeleteOption) error {
			c.writes = append(c.writes, "delete "+object.GetName())
			return api.Delete(ctx, object, options...)
		},
		SubResourceUpdate: func(ctx context.Context, api client.Client, sub string, object client.Object,
			options ...client.SubResourceUpdateOption) error {
			c.writes = append(c.writes, sub+" "+object.GetName())
			return api.SubResource(sub).Update(ctx, object, options...)
		},
	})
	c.r = &Reconciler{Client: watched, Live: c.api, CheckSelector: checkSelector, Events: c.events}
	return c
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// edit changes the topology's steps, as its author would.
func (c *cluster) edit(change func(steps []v1alpha1.Step) []v1alpha1.Step) {
	c.t.Helper()
	topology := c.topology()
	topology.Spec.Steps = change(topology.Spec.Steps)
	topology.Generation++
	c.must(c.api.Update(c.t.Context(), topology))
}

func (c *cluster) topology() *v1alpha1.NetworkTopology {
	c.t.Helper()
	topology := &v1alpha1.NetworkTopology{}
	c.must(c.api.Get(c.t.Context(), types.NamespacedName{Name: "net"}, topology))
	return topology
}

func (c *cluster) class(name string) *resourceapi.DeviceClass {
	c.t.Helper()
	class := &resourceapi.DeviceClass{}
	c.must(c.api.Get(c.t.Context(), types.NamespacedName{Name: name}, class))
	return class
}

// state runs a reconciliation, and returns the writes, the conditions and the classes in the cluster.
func (c *cluster) state() string {
	c.t.Helper()
	c.writes = nil
	result, err := c.r.Reconcile(c.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "net"}})
	var text strings.Builder
	if result.RequeueAfter > 0 {
		fmt.Fprintf(&text, "again in %s\n", result.RequeueAfter)
	}
	if err != nil {
		fmt.Fprintf(&text, "error: %v\n", err)
	}
	fmt.Fprintf(&text, "writes: %s\n", strings.Join(c.writes, ", "))
	topology := c.topology()
	for _, condition := range topology.Status.Conditions {
		fmt.Fprintf(&text, "%s=%s %s @%d: %s\n", condition.Type, condition.Status, condition.Reason,
			condition.ObservedGeneration, condition.Message)
	}
	var classes resourceapi.DeviceClassList
	c.must(c.api.List(c.t.Context(), &classes))
	var names []string
	for _, class := range classes.Items {
		names = append(names, class.Name)
	}
	fmt.Fprintf(&text, "status: %s; cluster: %s", strings.Join(topology.Status.DeviceClasses, " "),
		strings.Join(names, " "))
	return strings.TrimSpace(text.String())
}

func (c *cluster) expect(state, want string) {
	c.t.Helper()
	if diff := cmp.Diff(strings.TrimSpace(want), c.state()); diff != "" {
		c.t.Errorf("%s (-want +got):\n%s", state, diff)
	}
}

func TestReconcileInvalidValidInvalid(t *testing.T) {
	c := newCluster(t, parse(t, netSteps))
	setCEL := func(cel string) func([]v1alpha1.Step) []v1alpha1.Step {
		return func(steps []v1alpha1.Step) []v1alpha1.Step { steps[0].Selector.CEL = cel; return steps }
	}
	c.edit(setCEL("broken"))
	const invalid = `Accepted=False Invalid @%[1]d: spec.steps[0].selector.cel: Invalid value: "broken": does not compile; write it like device.attributes["dra.networking"].type == "vf"; "kubectl get ntopo net -o yaml | kubectl netdra chain validate -" shows each problem with its line
ClassesReady=False NotAccepted @%[1]d: the topology is not accepted, so it has no DeviceClasses: see the condition Accepted
status: ; cluster: `
	c.expect("invalid", "writes: status net\n"+fmt.Sprintf(invalid, 2))
	c.expect("invalid, again", "writes: \n"+fmt.Sprintf(invalid, 2))

	c.edit(setCEL("true"))
	const valid = `Accepted=True Valid @3: steps: 2, root steps: 2
ClassesReady=True Ready @3: a claim needs one request for each of: net-a, net-b
status: net-a net-b; cluster: net-a net-b`
	c.expect("valid", "writes: create net-a, create net-b, status net\n"+valid)
	c.expect("valid, again", "writes: \n"+valid)
	want := classesOf(c.topology(), false)[0]
	got := c.class("net-a")
	if diff := cmp.Diff(want.Spec, got.Spec); diff != "" {
		t.Errorf("wrong class (-want +got):\n%s", diff)
	}

	c.edit(setCEL("broken"))
	c.expect("invalid again", "writes: delete net-a, delete net-b, status net\n"+fmt.Sprintf(invalid, 4))
}

// A missing range is reported until it is created, because pods wait for it.
func TestReconcileTellsMissingRanges(t *testing.T) {
	c := newCluster(t, parse(t, netSteps), &v1alpha1.AddressRange{ObjectMeta: metav1.ObjectMeta{Name: "r2"}})
	edit := func(name string) {
		c.edit(func(steps []v1alpha1.Step) []v1alpha1.Step {
			steps[0].AddressRange = name
			steps[0].Config = &runtime.RawExtension{Raw: []byte(`{"ipam": {"type": "host-local"}}`)}
			return steps
		})
	}
	edit("r22")
	const remark = "the cluster has no AddressRange r22, and pods wait for it"
	if state := c.state(); !strings.Contains(state, remark) {
		t.Errorf("state lacks %q:\n%s", remark, state)
	}
	edit("r2")
	if state := c.state(); strings.Contains(state, "AddressRange") {
		t.Errorf("an existing range is reported as missing:\n%s", state)
	}
}

// The parameters and plugins that kubectl get shows to claim authors are only listed if the topology has classes.
func TestStatusSaysWhatClaimsMaySet(t *testing.T) {
	c := newCluster(t, parse(t, netSteps))
	c.edit(func(steps []v1alpha1.Step) []v1alpha1.Step {
		steps[0].ClaimParameters = []v1alpha1.ClaimParameter{v1alpha1.ClaimMAC}
		steps[1].ClaimParameters = []v1alpha1.ClaimParameter{v1alpha1.ClaimMAC, v1alpha1.ClaimInterfaceName}
		steps[1].Type = "macvlan"
		return append(steps, v1alpha1.Step{Name: "tuned", Type: "tuning", DependOn: []string{"b"}})
	})
	shown := func() string {
		c.state()
		status := c.topology().Status
		return fmt.Sprint(status.ClaimParameters, status.Plugins)
	}
	if got, want := shown(), "[interfaceName mac] [macvlan tuning]"; got != want {
		t.Errorf("status shows %s, want %s", got, want)
	}
	c.edit(func(steps []v1alpha1.Step) []v1alpha1.Step { steps[0].Selector.CEL = "broken"; return steps })
	if got := shown(); got != "[] []" {
		t.Errorf("the status of a topology without classes shows %s, want [] []", got)
	}
}

func TestReconcileRepairsDriftAndRemovesSteps(t *testing.T) {
	c := newCluster(t, parse(t, netSteps))
	c.state()
	class := c.class("net-b")
	class.Labels = map[string]string{"team": "x"}
	class.Spec.Selectors = nil
	c.must(c.api.Update(t.Context(), class))
	c.expect("drift", `
writes: patch net-b
Accepted=True Valid @1: steps: 2, root steps: 2
ClassesReady=True Ready @1: a claim needs one request for each of: net-a, net-b
status: net-a net-b; cluster: net-a net-b`)
	repaired := c.class("net-b")
	if len(repaired.Spec.Selectors) != 1 || repaired.Labels["team"] != "x" ||
		repaired.Labels[v1alpha1.LabelStep] != "b" {
		t.Errorf("the class was not repaired, or a foreign label was lost: %+v", repaired)
	}

	c.must(c.api.Delete(t.Context(), c.class("net-a")))
	c.edit(func(steps []v1alpha1.Step) []v1alpha1.Step { return steps[:1] })
	c.expect("a class is gone, a step is gone", `
writes: delete net-b, create net-a, status net
Accepted=True Valid @2: steps: 1, root steps: 1
ClassesReady=True Ready @2: a claim needs one request for each of: net-a
status: net-a; cluster: net-a`)
}

func TestReconcileLeavesClassesOfOthersAlone(t *testing.T) {
	foreign := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "net-a"}}
	c := newCluster(t, parse(t, netSteps), foreign)
	c.expect("taken", `
writes: create net-b, status net
Accepted=True Valid @1: steps: 2, root steps: 2
ClassesReady=False NameTaken @1: DeviceClasses of other owners have the names of classes of this topology: net-a (of another owner); delete or rename them, or rename the topology or its steps; "kubectl get ntopo" lists the classes that claims can request
status: net-b; cluster: net-a net-b`)
	if class := c.class("net-a"); len(class.Labels)+len(class.OwnerReferences)+len(class.Spec.Selectors) > 0 {
		t.Errorf("the class of another owner was changed: %+v", class)
	}
	c.must(c.api.Delete(t.Context(), foreign))
	c.expect("free again", `
writes: create net-a, status net
Accepted=True Valid @1: steps: 2, root steps: 2
ClassesReady=True Ready @1: a claim needs one request for each of: net-a, net-b
status: net-a net-b; cluster: net-a net-b`)
}

// If another class already has the extended resource name, the topology's status reports this, and claims can still use
// the topology's class. The topology's class gets the name as soon as it is free.
func TestReconcileExtendedResources(t *testing.T) {
	foreign := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "theirs"},
		Spec: resourceapi.DeviceClassSpec{ExtendedResourceName: ptr.To("example.com/vf")}}
	c := newCluster(t, parse(t, netSteps), foreign)
	c.edit(func(steps []v1alpha1.Step) []v1alpha1.Step {
		steps[0].ExtendedResourceName = "example.com/vf"
		return steps
	})
	c.expect("taken", `
writes: create net-a, create net-b, status net
Accepted=True Valid @2: steps: 2, root steps: 2
ClassesReady=False ExtendedResourceTaken @2: other DeviceClasses already have the extended resources of this topology: example.com/vf (DeviceClass theirs of another owner); the DeviceClasses of this topology exist without them; choose another extendedResourceName, or remove it from the other class; "kubectl get ntopo" lists the classes that claims can request
status: net-a net-b; cluster: net-a net-b theirs`)
	c.must(c.api.Delete(t.Context(), foreign))
	const free = `Accepted=True Valid @2: steps: 2, root steps: 2
ClassesReady=True Ready @2: a claim needs one request for each of: net-a, net-b; a pod without a claim can request the extended resources: example.com/vf
status: net-a net-b; cluster: net-a net-b`
	c.expect("free", "writes: patch net-a, status net\n"+free)
	if name := c.class("net-a").Spec.ExtendedResourceName; name == nil || *name != "example.com/vf" {
		t.Errorf("net-a has the extended resource name %v, want example.com/vf", name)
	}

	c.edit(func(steps []v1alpha1.Step) []v1alpha1.Step { steps[0].ExtendedResourceName = ""; return steps })
	c.expect("no longer wanted", `
writes: patch net-a, status net
Accepted=True Valid @3: steps: 2, root steps: 2
ClassesReady=True Ready @3: a claim needs one request for each of: net-a, net-b
status: net-a net-b; cluster: net-a net-b`)
	if name := c.class("net-a").Spec.ExtendedResourceName; name != nil {
		t.Errorf("net-a still has the extended resource name %s", *name)
	}
}

// If the description is removed from a topology, it is also removed from the classes, no matter who set it there.
func TestReconcileDescriptions(t *testing.T) {
	c := newCluster(t, parse(t, netSteps))
	describe := func(text string) {
		topology := c.topology()
		topology.Spec.Description = text
		topology.Generation++
		c.must(c.api.Update(t.Context(), topology))
	}
	expect := func(writes, description string) {
		t.Helper()
		c.state()
		if got := strings.Join(c.writes, ", "); got != writes {
			t.Errorf("got writes %q, want %q", got, writes)
		}
		if got := c.class("net-a").Annotations[v1alpha1.AnnotationDescription]; got != description {
			t.Errorf("the description of the class is %q, want %q", got, description)
		}
	}
	describe("fast")
	expect("create net-a, create net-b, status net", "fast")
	describe("")
	expect("patch net-a, patch net-b, status net", "")
	expect("", "")
	describe("slow")
	expect("patch net-a, patch net-b, status net", "slow")
	describe("")
	expect("patch net-a, patch net-b, status net", "")
}

// TestReconcileWithAStaleCache: a class that a user has just created is not in the cache yet.
func TestReconcileWithAStaleCache(t *testing.T) {
	foreign := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "net-a"}}
	c := newCluster(t, parse(t, netSteps), foreign)
	watched := c.r.Client
	c.r.Client = interceptor.NewClient(watched.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, api client.WithWatch, list client.ObjectList,
			options ...client.ListOption) error {
			if _, ofClasses := list.(*resourceapi.DeviceClassList); ofClasses {
				return nil
			}
			return api.List(ctx, list, options...)
		},
	})
	c.expect("not overwritten, looked at again", `
again in 200ms
writes: create net-a, create net-b
status: ; cluster: net-a net-b`)
	if class := c.class("net-a"); len(class.Labels) > 0 {
		t.Errorf("the class of another owner was changed: %+v", class)
	}
	c.r.Client = watched
	c.must(c.api.Delete(t.Context(), foreign))
	c.expect("the cache has caught up", `
writes: create net-a, status net
Accepted=True Valid @1: steps: 2, root steps: 2
ClassesReady=True Ready @1: a claim needs one request for each of: net-a, net-b
status: net-a net-b; cluster: net-a net-b`)
}

// TestReconcileWithAStaleTopology: another client writes the status between our read and our write.
func TestReconcileWithAStaleTopology(t *testing.T) {
	c := newCluster(t, parse(t, netSteps))
	watched := c.r.Client
	c.r.Client = interceptor.NewClient(c.api.(client.WithWatch), interceptor.Funcs{
		SubResourceUpdate: func(context.Context, client.Client, string, client.Object,
			...client.SubResourceUpdateOption) error {
			return apierrors.NewConflict(v1alpha1.GroupVersion().WithResource("networktopologies").GroupResource(),
				"net", errors.New("modified"))
		},
	})
	c.expect("not written, looked at again", `
again in 200ms
writes: 
status: ; cluster: net-a net-b`)
	c.r.Client = watched
	c.expect("written", `
writes: status net
Accepted=True Valid @1: steps: 2, root steps: 2
ClassesReady=True Ready @1: a claim needs one request for each of: net-a, net-b
status: net-a net-b; cluster: net-a net-b`)
}

func TestReconcileReportsAFailureAndGoesOn(t *testing.T) {
	c := newCluster(t, parse(t, netSteps))
	c.refuse, c.reason = "net-a", errors.New("forbidden by an admission policy")
	c.expect("refused", `
error: cannot create DeviceClass net-a: forbidden by an admission policy
writes: create net-b, status net
Accepted=True Valid @1: steps: 2, root steps: 2
ClassesReady=False Failed @1: cannot create DeviceClass net-a: forbidden by an admission policy; the controller retries; "kubectl get ntopo" lists the classes that claims can request
status: net-b; cluster: net-b`)
}

// TestReconcileHeedsSchemas: a schema in the cluster replaces the built-in one, which does not allow the tuning plugin
// in a root step.
func TestReconcileHeedsSchemas(t *testing.T) {
	topology := parse(t, `
metadata: {name: net}
spec: {steps: [{name: a, type: tuning, selector: {cel: "true"}}]}
`)
	c := newCluster(t, topology)
	if got := c.state(); !strings.Contains(got, "Accepted=False Invalid") ||
		!strings.Contains(got, "spec.steps[0].dependOn: Required value") {
		t.Errorf("with the built-in schema: got\n%s\nwant Accepted=False", got)
	}
	ours := &v1alpha1.CNIPluginSchema{ObjectMeta: metav1.ObjectMeta{Name: "ours"},
		Spec: v1alpha1.CNIPluginSchemaSpec{CNIType: "tuning"}}
	c.must(c.api.Create(t.Context(), ours))
	if got := c.r.affected(t.Context(), ours); len(got) != 1 || got[0].Name != "net" {
		t.Errorf("a schema change affects %v, want only topology net", got)
	}
	if got := c.state(); !strings.Contains(got, "Accepted=True") {
		t.Errorf("with a schema from the cluster: got\n%s\nwant Accepted=True", got)
	}
}

// TestRemarkComesLater: when a warning is added to a plugin's schema, it appears in the status of all topologies that
// use the plugin, including existing ones, and disappears when it is removed from the schema.
func TestRemarkComesLater(t *testing.T) {
	c := newCluster(t, parse(t, `
metadata: {name: net, generation: 1}
spec: {steps: [{name: a, type: mine, selector: {cel: "true"}}]}
`))
	c.state()
	risky := &v1alpha1.CNIPluginSchema{ObjectMeta: metav1.ObjectMeta{Name: "mine"},
		Spec: v1alpha1.CNIPluginSchemaSpec{CNIType: "mine", Remark: "its addresses are never free again"}}
	c.must(c.api.Create(t.Context(), risky))
	c.expect("with a remark", `
writes: status net
Accepted=True ValidWithRemarks @1: steps: 1, root steps: 1; but plugin mine: its addresses are never free again
ClassesReady=True Ready @1: a claim needs one request for each of: net-a
status: net-a; cluster: net-a`)
	risky.Spec.Remark = ""
	c.must(c.api.Update(t.Context(), risky))
	c.expect("without it", `
writes: status net
Accepted=True Valid @1: steps: 1, root steps: 1
ClassesReady=True Ready @1: a claim needs one request for each of: net-a
status: net-a; cluster: net-a`)
}

// TestContractsComeLater: if a schema becomes stricter after a topology was accepted, the topology keeps its classes
// until the topology itself is changed.
func TestContractsComeLater(t *testing.T) {
	c := newCluster(t, parse(t, `
metadata: {name: net, generation: 1}
spec: {steps: [{name: a, type: mine, selector: {cel: "true"}, config: {colour: red}}]}
`))
	const remark = "no schema for plugin mine, so its configuration is not checked"
	if got := c.state(); !strings.Contains(got, "Accepted=True ValidWithRemarks @1: steps: 1, root steps: 1; but "+
		remark+"\n") {
		t.Errorf("without a schema: got\n%s\nwant a remark that the configuration is not checked", got)
	}
	strict := &v1alpha1.CNIPluginSchema{ObjectMeta: metav1.ObjectMeta{Name: "strict"},
		Spec: v1alpha1.CNIPluginSchemaSpec{
			CNIType: "mine",
			Config: &v1alpha1.PluginConfig{
				Properties: map[string]v1alpha1.Parameter{"color": {Type: v1alpha1.TypeString}},
			},
		}}
	c.must(c.api.Create(t.Context(), strict))
	const breach = `spec.steps[0].config.colour: Invalid value: mine has no parameter of that name; it has ` +
		`args, capabilities, color, dev, dns, name, runtimeConfig`
	c.expect("stricter", `
writes: status net
Accepted=True ValidWithRemarks @1: steps: 1, root steps: 1; but `+breach+` (accepted before this rule existed)
ClassesReady=True Ready @1: a claim needs one request for each of: net-a
status: net-a; cluster: net-a`)
	c.edit(func(steps []v1alpha1.Step) []v1alpha1.Step { steps[0].IfName = "data0"; return steps })
	c.expect("written again", `
writes: delete net-a, status net
Accepted=False Invalid @2: `+breach+
		`; "kubectl get ntopo net -o yaml | kubectl netdra chain validate -" shows each problem with its line
ClassesReady=False NotAccepted @2: the topology is not accepted, so it has no DeviceClasses: see the condition Accepted
status: ; cluster:`)
	strict.Spec.Config.Properties["color"] = v1alpha1.Parameter{Type: "text"}
	c.must(c.api.Update(t.Context(), strict))
	c.expect("a schema that is invalid says nothing of parameters", `
writes: create net-a, status net
Accepted=True Valid @2: steps: 1, root steps: 1
ClassesReady=True Ready @2: a claim needs one request for each of: net-a
status: net-a; cluster: net-a`)
}

// TestEventsOnlyOfChanges: no event is emitted for an unchanged condition.
func TestEventsOnlyOfChanges(t *testing.T) {
	c := newCluster(t, parse(t, netSteps))
	expect := func(state string, want ...string) {
		t.Helper()
		c.state()
		var got []string
		for len(c.events.Events) > 0 {
			got = append(got, <-c.events.Events)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", state, diff)
		}
	}
	ready := "Normal Ready ClassesReady: a claim needs one request for each of: net-a, net-b"
	expect("new")
	expect("again")
	c.must(c.api.Delete(t.Context(), c.class("net-a")))
	c.must(c.api.Create(t.Context(), &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "net-a"}}))
	expect("taken", "Warning NameTaken ClassesReady: DeviceClasses of other owners have the names of classes of this "+
		"topology: net-a (of another owner); "+
		`delete or rename them, or rename the topology or its steps; "kubectl get ntopo" lists the classes that `+
		"claims can request")
	another := func(ifName string) {
		c.edit(func(steps []v1alpha1.Step) []v1alpha1.Step { steps[1].IfName = ifName; return steps })
	}
	another("data0")
	expect("taken, in another generation")
	c.must(c.api.Delete(t.Context(), c.class("net-a")))
	expect("free", ready)
	another("data1")
	expect("free, in another generation")
}

// TestListAttributesOfAnAPIServerWithout: if the API server cannot compile the classes' expressions, the error names
// the missing feature.
func TestListAttributesOfAnAPIServerWithout(t *testing.T) {
	c := newCluster(t, parse(t, netSteps))
	c.r.ListAttributes = true
	c.refuse, c.reason = "net-a", apierrors.NewInvalid(schema.GroupKind{Group: "resource.k8s.io", Kind: "DeviceClass"},
		"net-a",
		field.ErrorList{field.Invalid(field.NewPath("spec", "selectors"), "", "undeclared reference to 'includes'")})
	got := c.state()
	for _, want := range []string{"ClassesReady=False Failed",
		"undeclared reference to 'includes'; --list-attributes needs the feature gate DRAListTypeAttributes"} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant ... %s ...", got, want)
		}
	}
	if selector := c.class("net-b").Spec.Selectors[0].CEL.Expression; !strings.Contains(selector,
		`.includes("host-device")`) {
		t.Errorf("the class has the selector %s, want one that includes host-device", selector)
	}
}

// TestListAttributesAreTakenBack: classes are updated when the option changes.
func TestListAttributesAreTakenBack(t *testing.T) {
	c := newCluster(t, parse(t, netSteps))
	for _, lists := range []bool{true, false, true} {
		c.r.ListAttributes = lists
		c.state()
		if got := strings.Contains(c.class("net-a").Spec.Selectors[0].CEL.Expression, "includes"); got != lists {
			t.Errorf("the class selector uses includes: %t, want %t", got, lists)
		}
	}
}

func TestReconcileOfATopologyThatGoes(t *testing.T) {
	topology := parse(t, netSteps)
	topology.Finalizers = []string{"example.com/wait"}
	c := newCluster(t, topology)
	c.must(c.api.Delete(t.Context(), c.topology()))
	c.expect("deleted, held by a finalizer", "writes: \nstatus: ; cluster: ")
}

// TestClassesOfTopologiesThatAreGone: orphaned classes are deleted even if no other component deletes them, so that a
// new topology with the same name does not wait forever.
func TestClassesOfTopologiesThatAreGone(t *testing.T) {
	topology := parse(t, netSteps)
	topology.UID = "first"
	c := newCluster(t, topology)
	c.state()
	copied := c.class("net-a").DeepCopy() // a user's copy, with the labels, but without the owner
	copied.Name, copied.ResourceVersion, copied.UID, copied.OwnerReferences = "copied", "", "", nil
	c.must(c.api.Create(t.Context(), copied))
	watched := c.r.Client
	c.r.Client = interceptor.NewClient(watched.(client.WithWatch), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return apierrors.NewNotFound(v1alpha1.GroupVersion().WithResource("networktopologies").GroupResource(),
				"net")
		},
	})
	if got := c.state(); !strings.Contains(got, "again in 200ms\nwrites: \n") {
		t.Errorf("topology missing only from the cache: got\n%s\nwant no writes, and another look", got)
	}
	c.r.Client = watched

	c.must(c.api.Delete(t.Context(), c.topology()))
	again := parse(t, netSteps)
	again.UID = "second"
	c.must(c.api.Create(t.Context(), again))
	if got := c.state(); !strings.Contains(got, "writes: delete net-a, delete net-b\n") ||
		!strings.HasSuffix(got, "cluster: copied") {
		t.Errorf("topology recreated under the same name: got\n%s\nwant its classes deleted", got)
	}
	if got := c.state(); !strings.Contains(got, "writes: create net-a, create net-b, status net\n") {
		t.Errorf("topology recreated, old classes gone: got\n%s\nwant new classes", got)
	}

	c.must(c.api.Delete(t.Context(), c.topology()))
	c.writes = nil
	for range 2 {
		if _, err := c.r.Reconcile(t.Context(),
			reconcile.Request{NamespacedName: types.NamespacedName{Name: "net"}}); err != nil {
			t.Errorf("Reconcile of a deleted topology: %v", err)
		}
	}
	if diff := cmp.Diff([]string{"delete net-a", "delete net-b"}, c.writes); diff != "" {
		t.Errorf("classes of a deleted topology (-want +got):\n%s", diff)
	}
}

// TestClassesThatAreHeld: an old class with a foreign finalizer is deleted only once, and is reported as an obstacle.
func TestClassesThatAreHeld(t *testing.T) {
	topology := parse(t, netSteps)
	topology.UID = "first"
	c := newCluster(t, topology)
	c.state()
	held := c.class("net-a")
	held.Finalizers = []string{"example.com/keep"}
	c.must(c.api.Update(t.Context(), held))
	c.must(c.api.Delete(t.Context(), c.topology()))
	again := parse(t, netSteps)
	again.UID = "second"
	c.must(c.api.Create(t.Context(), again))
	if got := c.state(); !strings.Contains(got, "writes: delete net-a, delete net-b\n") {
		t.Errorf("topology recreated under the same name: got\n%s\nwant the old classes deleted", got)
	}
	if got := c.state(); strings.Contains(got, "again in") ||
		!strings.Contains(got, "writes: create net-b, status net\n") {
		t.Errorf("while a finalizer holds the old class: got\n%s\nwant only net-b created", got)
	}
	held = c.class("net-a")
	held.Finalizers = nil
	c.must(c.api.Update(t.Context(), held))
	if got := c.state(); !strings.Contains(got, "writes: create net-a, status net\n") {
		t.Errorf("once the old class is gone: got\n%s\nwant net-a created", got)
	}
}
