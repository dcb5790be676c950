package controller

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

const (
	topologies = 500
	roots      = 2 // per topology
	nodes      = 1000
)

const steps = `
steps:
- {name: a, type: host-device, selector: {cel: 'device.attributes["dra.networking"].type == "nic"'}, claimParameters: [interfaceName]}
- {name: b, type: host-device, selector: {cel: 'device.attributes["dra.networking"].type == "nic"'}}
- name: bond
  type: bond
  dependOn: [a, b]
  config: {mode: active-backup, miimon: "100", linksInContainer: true, links: [{name: "{{ a.interfaceName }}"}, {name: "{{ b.interfaceName }}"}]}
`

// The parts of TestAtScale run in order, because each depends on the state that the previous part leaves behind.
func TestAtScale(t *testing.T) {
	p := newPlane(t)
	stop := p.startController()
	begin := time.Now()
	p.createTopologies()
	created := time.Since(begin)
	p.untilReady()
	first, err := p.counts()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d topologies were created in %s, and had their %d classes %s after the first of them; the controller "+
		"looked %d times, wrote %v, used %s of a processor and has %d MiB of memory",
		topologies, created.Round(time.Millisecond), topologies*roots, time.Since(begin).Round(time.Millisecond),
		first.reconciled, first.writes, first.cpu.Round(10*time.Millisecond), first.resident>>20)
	if least := topologies * (roots + 1); first.all() > least+least/10 { // the controller's cache is sometimes outdated
		t.Errorf("the controller made %d writes, although %d are enough", first.all(), least)
	}

	t.Run("kubectl shows what claims ask for", func(t *testing.T) { p.forTest(t).testColumns() })
	t.Run("a schema that changes nothing has everything looked at and nothing else written", func(t *testing.T) {
		p := p.forTest(t)
		before := p.atRest()
		schema := &v1alpha1.CNIPluginSchema{ObjectMeta: metav1.ObjectMeta{Name: "new"},
			Spec: v1alpha1.CNIPluginSchemaSpec{CNIType: "new"}}
		if err := p.api.Create(t.Context(), schema); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		after := p.settled(before.reconciled + topologies)
		t.Logf("%d topologies were reconciled in %s", topologies, time.Since(begin).Round(time.Millisecond))
		if after.all() > before.all()+1 { // one write is for the schema's condition
			t.Errorf("numbers of writes after the changes: %v, before: %v", after.writes, before.writes)
		}
	})
	t.Run("a range that comes and goes has everything looked at", func(t *testing.T) {
		p := p.forTest(t)
		before := p.atRest()
		made := &v1alpha1.AddressRange{ObjectMeta: metav1.ObjectMeta{Name: "new"},
			Spec: v1alpha1.AddressRangeSpec{CIDRs: []string{"10.0.0.0/16"}}}
		if err := p.api.Create(t.Context(), made); err != nil {
			t.Fatal(err)
		}
		p.settled(before.reconciled + topologies)
		if err := p.api.Delete(t.Context(), made); err != nil {
			t.Fatal(err)
		}
		p.settled(before.reconciled + 2*topologies)
	})
	stop()
	p.startController()
	t.Run("a controller that starts finds nothing to do", func(t *testing.T) {
		if got := p.forTest(t).settled(topologies); got.all() != 0 {
			t.Errorf("a controller that had nothing to do wrote %v", got.writes)
		}
	})
	t.Run("a thousand nodes are nothing to it", func(t *testing.T) { p.forTest(t).testNodes() })
	t.Run("their devices are counted", func(t *testing.T) { p.forTest(t).testOffers() })
	t.Run("drift is repaired", func(t *testing.T) { p.forTest(t).testDrift() })
	t.Run("classes of others are left alone", func(t *testing.T) { p.forTest(t).testTaken() })
	t.Run("claims are whole", func(t *testing.T) { p.forTest(t).testClaims() })
	t.Run("classes go with their topology", func(t *testing.T) { p.forTest(t).testDeletion() })
}

// createTopologies creates the topologies, several at a time, like a tool that applies a directory.
func (p *plane) createTopologies() {
	p.t.Helper()
	var spec v1alpha1.NetworkTopologySpec
	if err := yaml.UnmarshalStrict([]byte(steps), &spec); err != nil {
		p.t.Fatal(err)
	}
	p.each(topologies, func(i int) error {
		return p.api.Create(p.t.Context(),
			&v1alpha1.NetworkTopology{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("net%d", i)},
				Spec: *spec.DeepCopy()})
	})
}

// each calls do(i) for every i below count, with up to eight calls at a time.
func (p *plane) each(count int, do func(i int) error) {
	p.t.Helper()
	var group errgroup.Group
	group.SetLimit(8)
	for i := range count {
		group.Go(func() error { return do(i) })
	}
	if err := group.Wait(); err != nil {
		p.t.Fatal(err)
	}
}

// testNodes creates nodes that publish a device and update their status. The controller must ignore these status
// updates.
func (p *plane) testNodes() {
	p.t.Helper()
	before := p.atRest()
	p.each(nodes, func(i int) error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i)}}
		slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node.Name},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: v1alpha1.DriverName, NodeName: &node.Name, Pool: resourceapi.ResourcePool{Name: node.Name,
					ResourceSliceCount: 1},
				Devices: []resourceapi.Device{{Name: "eth1"}},
			}}
		if err := errors.Join(p.api.Create(p.t.Context(), node), p.api.Create(p.t.Context(), slice)); err != nil {
			return err
		}
		// other components also update Node objects
		ready := client.RawPatch(types.MergePatchType,
			[]byte(`{"status": {"conditions": [{"type": "Ready", "status": "True"}]}}`))
		return p.api.Status().Patch(p.t.Context(), node, ready)
	})
	if after := p.atRest(); after.reconciled != before.reconciled || after.all() != before.all() {
		p.t.Errorf("the controller is not idle: reconciled %d, wrote %v; before: reconciled %d, wrote %v",
			after.reconciled, after.writes, before.reconciled, before.writes)
	}
	p.kubectl("", "delete", "nodes,resourceslices", "--all", "--wait=false")
}

// testOffers creates a policy before nodes publish devices. It checks the policy's status while nodes publish devices
// under the policy, and after all devices have been removed.
func (p *plane) testOffers() {
	p.t.Helper()
	const policy = `{apiVersion: networking.dra.io/v1alpha1, kind: DeviceExposurePolicy, metadata: {name: NAME}, spec: ` +
		`{selector: {cel: 'device.attributes["dra.networking"].type == "nic"'}, exposure: {supportedCNIPlugins: ` +
		`[{name: host-device, exclusive: true}]}}}`
	for _, name := range []string{"offers", "idle"} {
		p.kubectl(strings.Replace(policy, "NAME", name, 1), "apply", "-f", "-")
	}
	p.untilOffered("offers", 0, 0, "False")
	p.untilOffered("idle", 0, 0, "False") // otherwise its first count could be included in the writes below
	before, begin := p.atRest(), time.Now()
	p.each(nodes, func(i int) error {
		node := fmt.Sprintf("node-%d", i)
		slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node},
			Spec: resourceapi.ResourceSliceSpec{Driver: v1alpha1.DriverName, NodeName: &node,
				Pool: resourceapi.ResourcePool{Name: node, ResourceSliceCount: 1}}}
		offered := "offers"
		for _, name := range []string{"eth1", "eth2"} {
			slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: name,
				Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
					"dra.networking/exposurePolicy":  {StringValue: &offered},
					"cni.dra.networking/host_device": {BoolValue: ptr.To(true)}}})
		}
		return p.api.Create(p.t.Context(), slice)
	})
	p.untilOffered("offers", 2*nodes, nodes, "True")
	p.untilOffered("idle", 0, 0, "False")
	after, took := p.atRest(), time.Since(begin)
	wrote := after.all() - before.all()
	p.t.Logf("%d slices: %d writes in %s", nodes, wrote, took.Round(time.Second))
	if most := int(took/(5*time.Second)) + 1; wrote == 0 || wrote > most { // at most one write every 5 s
		p.t.Errorf("the controller made %d writes, want at most %d: before %v, after %v", wrote, most, before.writes,
			after.writes)
	}
	table := p.kubectl("", "get", "dep")
	for _, want := range []string{`(?m)^NAME +ACTION +PRIORITY +ACCEPTED +DEVICES +NODES +AGE$`,
		fmt.Sprintf(`(?m)^offers +expose +100 +True +%d +%d `, 2*nodes, nodes), `(?m)^idle +expose +100 +True +0 +0 `} {
		if !regexp.MustCompile(want).MatchString(table) {
			p.t.Errorf("the output of kubectl get dep does not match %q:\n%s", want, table)
		}
	}
	p.kubectl("", "delete", "resourceslices", "--all", "--wait=false")
	p.untilOffered("offers", 0, 0, "False")
	p.kubectl("", "delete", "dep", "offers", "idle")
}

// untilOffered waits until a policy's status has the given counts and the given condition.
func (p *plane) untilOffered(name string, devices, nodes int32, offered metav1.ConditionStatus) {
	p.t.Helper()
	p.until(fmt.Sprintf("policy %s offers %d devices", name, devices), func() error {
		var policy policyapi.DeviceExposurePolicy
		if err := p.api.Get(p.t.Context(), types.NamespacedName{Name: name}, &policy); err != nil {
			return err
		}
		condition := meta.FindStatusCondition(policy.Status.Conditions, policyapi.ConditionDevicesOffered)
		accepted := meta.IsStatusConditionTrue(policy.Status.Conditions, policyapi.ConditionAccepted)
		if !accepted || condition == nil || condition.Status != offered || policy.Status.Devices == nil ||
			*policy.Status.Devices != devices || policy.Status.Nodes == nil || *policy.Status.Nodes != nodes {
			return fmt.Errorf("the policy's status is %+v", policy.Status)
		}
		return nil
	})
}

// testColumns checks the columns that kubectl prints for topologies, which are read by users who write claims.
func (p *plane) testColumns() {
	p.t.Helper()
	table := p.kubectl("", "get", "ntopo", "net7", "-o", "wide")
	for _, want := range []string{
		`^NAME +ACCEPTED +CLASSES +DEVICE CLASSES +CLAIM PARAMETERS +DESCRIPTION +CNI PLUGINS +CLASSES REASON +MESSAGE `,
		`\nnet7 +True +True +\["net7-a","net7-b"\] +\["interfaceName"\] +\["host-device","bond"\] `,
	} {
		if !regexp.MustCompile(want).MatchString(table) {
			p.t.Errorf("the output of kubectl get ntopo does not match %q:\n%s", want, table)
		}
	}
}

// untilReady waits until every topology reports that its classes are ready, and all classes exist.
func (p *plane) untilReady() {
	p.t.Helper()
	p.until("every topology is ready", func() error {
		var list v1alpha1.NetworkTopologyList
		if err := p.api.List(p.t.Context(), &list); err != nil {
			return err
		}
		ready := 0
		for i := range list.Items {
			if meta.IsStatusConditionTrue(list.Items[i].Status.Conditions, v1alpha1.ConditionClassesReady) {
				ready++
			}
		}
		if classes := len(p.classes()); ready != topologies || classes != topologies*roots {
			return fmt.Errorf("%d of %d topologies are ready, with %d of %d classes", ready, topologies, classes,
				topologies*roots)
		}
		return nil
	})
}

// atRest waits until the metrics have not changed for three seconds. On a busy machine, a controller that has work to
// do might not get any CPU time for a second.
func (p *plane) atRest() counts {
	p.t.Helper()
	last, err := p.counts()
	if err != nil {
		p.t.Fatal(err)
	}
	seen := time.Now()
	p.until("the controller is at rest", func() error {
		now, err := p.counts()
		if err != nil {
			return err
		}
		if now.reconciled != last.reconciled || now.all() != last.all() {
			last, seen = now, time.Now()
		}
		if time.Since(seen) < 3*time.Second {
			return fmt.Errorf("the controller has reconciled %d times and made %v writes", now.reconciled, now.writes)
		}
		return nil
	})
	return last
}

func (p *plane) testDrift() {
	p.t.Helper()
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "net7-a"}}
	if err := p.api.Delete(p.t.Context(), class); err != nil {
		p.t.Fatal(err)
	}
	p.until("the class is recreated", func() error {
		return p.api.Get(p.t.Context(), client.ObjectKeyFromObject(class), class)
	})
	patch := client.RawPatch(types.JSONPatchType, []byte(`[{"op": "replace", "path": "/spec/selectors", "value": []}]`))
	if err := p.api.Patch(p.t.Context(), class, patch); err != nil {
		p.t.Fatal(err)
	}
	p.until("the class is repaired", func() error {
		if err := p.api.Get(p.t.Context(), client.ObjectKeyFromObject(class), class); err != nil ||
			len(class.Spec.Selectors) != 1 {
			return fmt.Errorf("the class has %d selectors (%w)", len(class.Spec.Selectors), err)
		}
		return nil
	})
}

func (p *plane) testTaken() {
	p.t.Helper()
	foreign := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "mine-a"}}
	if err := p.api.Create(p.t.Context(), foreign); err != nil {
		p.t.Fatal(err)
	}
	p.kubectl(
		`{apiVersion: networking.dra.io/v1alpha1, kind: NetworkTopology, metadata: {name: mine}, spec: {steps: [{name: a, type: macvlan, selector: {cel: "true"}}]}}`, "create", "-f", "-",
	)
	p.until("the conflict is told", func() error {
		topology := &v1alpha1.NetworkTopology{}
		if err := p.api.Get(p.t.Context(), types.NamespacedName{Name: "mine"}, topology); err != nil {
			return err
		}
		if ready := meta.FindStatusCondition(topology.Status.Conditions,
			v1alpha1.ConditionClassesReady); ready == nil || ready.Reason != "NameTaken" {
			return fmt.Errorf("conditions: %v", topology.Status.Conditions)
		}
		return nil
	})
	p.until("an event reports it too", func() error {
		out := p.kubectl("", "get", "events", "-n", "default", "--field-selector=involvedObject.name=mine")
		if !strings.Contains(out, "NameTaken") {
			return errors.New(out)
		}
		return nil
	})
	version := foreign.ResourceVersion
	if err := p.api.Get(p.t.Context(), client.ObjectKeyFromObject(foreign), foreign); err != nil ||
		foreign.ResourceVersion != version {
		p.t.Errorf("the class of another owner was changed, or cannot be read: %v", err)
	}
}

func (p *plane) testClaims() {
	p.t.Helper()
	const request = `{name: %[1]s, exactly: {deviceClassName: %[1]s}}`
	claim := func(version, name string, classes ...string) string {
		var requests []string
		for _, class := range classes {
			text := fmt.Sprintf(request, class)
			requests = append(requests, text)
		}
		return fmt.Sprintf(
			`{apiVersion: resource.k8s.io/%s, kind: ResourceClaim, metadata: {name: %s}, spec: {devices: {requests: [%s]}}}`, version, name, strings.Join(requests, ", "),
		)
	}
	// the API server loads the policy with a delay
	p.until("a claim for one root of two is refused", func() error {
		out, err := p.try(claim("v1", "half", "net0-a"), "create", "--dry-run=server", "-f", "-")
		if err == nil || !strings.Contains(out, "add a request for the DeviceClass net0-b") {
			return fmt.Errorf("kubectl says %s (%w)", out, err)
		}
		return nil
	})
	for _, object := range []string{claim("v1", "whole", "net0-a", "net0-b"), claim("v1", "foreign", "gpu"),
		claim("v1", "taken", "mine-a")} {
		p.kubectl(object, "create", "-f", "-")
	}
	p.timeClaims()
	p.kubectl("", "delete", "validatingadmissionpolicybinding", "dra-network-claims")
	p.until("the API server no longer evaluates the policy", func() error {
		out, err := p.try(claim("v1", "half", "net0-a"), "create", "--dry-run=server", "-f", "-")
		if err != nil {
			return fmt.Errorf("kubectl says %s (%w)", out, err)
		}
		return nil
	})
	p.t.Log("timings without the policy:")
	p.kubectl("", "delete", "resourceclaims", "--all")
	p.timeClaims()
}

// timeClaims logs how long it takes to create a claim for another driver. For such a claim, the admission policy is
// evaluated once for each topology.
func (p *plane) timeClaims() {
	p.t.Helper()
	const claims = 50
	begin := time.Now()
	for i := range claims {
		claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault,
			Name: fmt.Sprintf("timed%d", i)}}
		claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "r",
			Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "gpu"}}}
		if err := p.api.Create(p.t.Context(), claim); err != nil {
			p.t.Fatal(err)
		}
	}
	p.t.Logf("a claim for another driver was accepted in %s", (time.Since(begin) / claims).Round(10*time.Microsecond))
}

func (p *plane) testDeletion() {
	p.t.Helper()
	topology := &v1alpha1.NetworkTopology{ObjectMeta: metav1.ObjectMeta{Name: "net9"}}
	if err := p.api.Delete(p.t.Context(), topology); err != nil {
		p.t.Fatal(err)
	}
	for _, name := range []string{"net9-a", "net9-b"} {
		p.until(name+" goes", func() error {
			err := p.api.Get(p.t.Context(), types.NamespacedName{Name: name}, &resourceapi.DeviceClass{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("it still exists (%w)", err)
		})
	}
}
