package endpoints

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryapi "k8s.io/api/discovery/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/objects"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// cluster is an API server with the annotated Service db, and the reconciler under test.
type cluster struct {
	*testing.T
	api    client.Client
	r      *Reconciler
	events *events.FakeRecorder
}

const service = `
metadata:
  namespace: ns
  name: db
  uid: service
  annotations: {networking.dra.io/endpoints-topology: storage/port, networking.dra.io/endpoints-selector: app=db}
spec:
  clusterIP: None
  ports: [{name: sql, port: 5432, protocol: TCP}, {name: metrics, port: 80, protocol: TCP, targetPort: metrics}]
`

func newCluster(t *testing.T, changes ...string) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	c := &cluster{T: t, events: events.NewFakeRecorder(100)}
	c.must(errors.Join(corev1.AddToScheme(scheme), resourceapi.AddToScheme(scheme), discoveryapi.AddToScheme(scheme)))
	c.api = fake.NewClientBuilder().WithScheme(scheme).Build()
	c.r = &Reconciler{Client: cached{c.api}, Live: c.api, Events: c.events}
	object := &corev1.Service{}
	c.must(yaml.UnmarshalStrict([]byte(strings.NewReplacer(changes...).Replace(service)), object))
	c.must(c.api.Create(t.Context(), object))
	return c
}

// cached is a client that returns Services and pods as the cache stores them.
type cached struct{ client.Client }

func (c cached) Get(
	ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption,
) error {
	err := c.Client.Get(ctx, key, object, options...)
	if service, ok := object.(*corev1.Service); ok && err == nil {
		kept, transformErr := TransformService(service.DeepCopy())
		*service, err = *kept.(*corev1.Service), transformErr
	}
	return err
}

func (c cached) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	err := c.Client.List(ctx, list, options...)
	switch list := list.(type) {
	case *corev1.ServiceList:
		for i := range list.Items {
			kept, transformErr := TransformService(list.Items[i].DeepCopy())
			list.Items[i], err = *kept.(*corev1.Service), errors.Join(err, transformErr)
		}
	case *corev1.PodList:
		for i := range list.Items {
			kept, transformErr := TransformPod(list.Items[i].DeepCopy())
			list.Items[i], err = *kept.(*corev1.Pod), errors.Join(err, transformErr)
		}
	}
	return err
}

func (c *cluster) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// pod creates a ready pod whose claim has addresses from the topology "storage".
func (c *cluster) pod(name string, change func(*corev1.Pod, *resourceapi.ResourceClaim), addresses ...string) {
	c.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name),
		Labels: map[string]string{"app": "db"}}}
	pod.Spec.NodeName = "n1"
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "net", ResourceClaimName: &pod.Name}}
	pod.Spec.Containers = []corev1.Container{{Name: "a", Ports: []corev1.ContainerPort{{Name: "metrics",
		ContainerPort: 9090, Protocol: corev1.ProtocolTCP}}}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	parameters, err := json.Marshal(map[string]any{"networkTopologyRef": map[string]string{"name": "storage"},
		"step": "port"})
	c.must(err)
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: name,
		UID: pod.UID}}
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Request: "net", Driver: v1alpha1.DriverName,
			Pool: "n1/eth1", Device: "eth1"}},
		Config: []resourceapi.DeviceAllocationConfiguration{{Source: resourceapi.AllocationConfigSourceClass,
			DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
				Driver: v1alpha1.DriverName, Parameters: runtime.RawExtension{Raw: parameters}}}}},
	}}
	claim.Status.Devices = []resourceapi.AllocatedDeviceStatus{{Driver: v1alpha1.DriverName, Pool: "n1/eth1",
		Device: "eth1", NetworkData: &resourceapi.NetworkDeviceData{IPs: addresses}}}
	if change != nil {
		change(pod, claim)
	}
	c.must(errors.Join(c.api.Create(c.Context(), pod), c.api.Create(c.Context(), claim)))
}

func (c *cluster) reconcile() {
	c.Helper()
	_, err := c.r.Reconcile(c.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns",
		Name: "db"}})
	c.must(err)
}

func (c *cluster) slices() []discoveryapi.EndpointSlice {
	c.Helper()
	var list discoveryapi.EndpointSliceList
	c.must(c.api.List(c.Context(), &list))
	return list.Items
}

// expect compares the slices, formatted as "name family ports: address pod conditions, ...".
func (c *cluster) expect(want ...string) {
	c.Helper()
	var got []string
	for _, slice := range c.slices() {
		var ports, endpoints []string
		for _, port := range slice.Ports {
			ports = append(ports, fmt.Sprintf("%s=%d", *port.Name, *port.Port))
		}
		for _, e := range slice.Endpoints {
			text := e.Addresses[0] + " " + e.TargetRef.Name
			for name, condition := range map[string]*bool{"ready": e.Conditions.Ready, "serving": e.Conditions.Serving,
				"terminating": e.Conditions.Terminating} {
				if *condition {
					text += " +" + name
				}
			}
			words := strings.Fields(text)
			slices.Sort(words[2:])
			if text = strings.Join(words, " "); e.Hostname != nil {
				text += " " + *e.Hostname
			}
			endpoints = append(endpoints, text)
		}
		got = append(got, fmt.Sprintf("%s %s %s: %s", slice.Name, slice.AddressType, strings.Join(ports, " "),
			strings.Join(endpoints, ", ")))
	}
	if !slices.Equal(got, want) {
		c.Errorf("got slices\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestEndpointsOfClaims(t *testing.T) {
	c := newCluster(t)
	c.pod("a", nil, "10.60.0.2/16", "fd00::2/64", "fe80::1/64")
	c.pod("unready", func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) { pod.Status.Conditions = nil },
		"10.60.0.3/16")
	c.pod("terminating", func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
		pod.Finalizers = []string{"example.com/wait"}
		pod.Spec.Hostname, pod.Spec.Subdomain = "host", "db"
	}, "10.60.0.4/16")
	c.must(c.api.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "terminating"}}))
	c.pod("portless", func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) { pod.Spec.Containers = nil }, "10.60.0.5/16")
	for name, change := range map[string]func(*corev1.Pod, *resourceapi.ResourceClaim){
		"other":  func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) { pod.Labels = nil },
		"ended":  func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) { pod.Status.Phase = corev1.PodSucceeded },
		"failed": func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) { pod.Status.Phase = corev1.PodFailed },
		"shared": func(_ *corev1.Pod, claim *resourceapi.ResourceClaim) {
			claim.Status.ReservedFor = append(claim.Status.ReservedFor,
				resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: "x", UID: "x"})
		},
		"earlier": func(_ *corev1.Pod, claim *resourceapi.ResourceClaim) { claim.Status.ReservedFor[0].UID = "x" },
		"driver":  func(_ *corev1.Pod, claim *resourceapi.ResourceClaim) { claim.Status.Devices[0].Driver = "x" },
		"device":  func(_ *corev1.Pod, claim *resourceapi.ResourceClaim) { claim.Status.Devices[0].Device = "x" },
		"topology": func(_ *corev1.Pod, claim *resourceapi.ResourceClaim) {
			raw := &claim.Status.Allocation.Devices.Config[0].Opaque.Parameters.Raw
			*raw = []byte(strings.Replace(string(*raw), "storage", "other", 1))
		},
		"step": func(_ *corev1.Pod, claim *resourceapi.ResourceClaim) {
			raw := &claim.Status.Allocation.Devices.Config[0].Opaque.Parameters.Raw
			*raw = []byte(strings.Replace(string(*raw), "port", "uplink", 1))
		},
	} {
		c.pod(name, change, "10.60.0.99/16")
	}
	c.reconcile()
	want := []string{
		"db-dra-network-0 IPv4 metrics=9090 sql=5432: 10.60.0.2 a +ready +serving, 10.60.0.3 unready, " +
			"10.60.0.4 terminating +serving +terminating host",
		"db-dra-network-1 IPv4 sql=5432: 10.60.0.5 portless +ready +serving",
		"db-dra-network-2 IPv6 metrics=9090 sql=5432: fd00::2 a +ready +serving",
	}
	c.expect(want...)
	before := c.slices()
	c.reconcile()
	if after := c.slices(); after[0].ResourceVersion != before[0].ResourceVersion {
		t.Error("an unchanged slice was written")
	}
	if slice := before[0]; slice.OwnerReferences[0].UID != "service" ||
		slice.Labels[discoveryapi.LabelServiceName] != "db" || slice.Labels[discoveryapi.LabelManagedBy] != ManagedBy {
		t.Errorf("wrong owner or labels: %+v", slice.ObjectMeta)
	}
	c.must(c.api.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}))
	c.reconcile()
	c.expect("db-dra-network-0 IPv4 metrics=9090 sql=5432: 10.60.0.3 unready, 10.60.0.4 terminating +serving "+
		"+terminating host", want[1])
}

// TestManyEndpoints: removing or adding a pod changes only one slice.
func TestManyEndpoints(t *testing.T) {
	c := newCluster(t)
	address := func(i int) string { return fmt.Sprintf("10.60.%d.%d/16", i/200, i%200+1) }
	for i := range 250 {
		c.pod(fmt.Sprintf("pod-%d", i), nil, address(i))
	}
	c.reconcile()
	sizes := func() (sizes []int) {
		for _, slice := range c.slices() {
			sizes = append(sizes, len(slice.Endpoints))
		}
		return sizes
	}
	if got := fmt.Sprint(sizes()); got != "[100 100 50]" {
		t.Fatalf("slices have %s endpoints, want [100 100 50]", got)
	}
	before := c.slices()
	c.must(c.api.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod-7"}}))
	c.reconcile()
	c.pod("late", nil, address(300))
	c.reconcile()
	written := 0
	for i, slice := range c.slices() {
		if slice.ResourceVersion != before[i].ResourceVersion {
			written++
		}
	}
	if got := fmt.Sprint(sizes()); got != "[100 100 50]" || written != 1 {
		t.Errorf("slices have %s endpoints, %d were written; want [100 100 50], 1", got, written)
	}
}

func TestServicesThatGetNone(t *testing.T) {
	for reason, changes := range map[string][]string{
		"the Service has a spec.selector":         {"clusterIP: None", "clusterIP: None\n  selector: {app: db}"},
		"a Service of type ExternalName":          {"clusterIP: None", "type: ExternalName"},
		"endpoints-selector is not a valid":       {"app=db", "app in"},
		"is not a valid label selector":           {"app=db", "app in " + strings.Repeat("long", 1000)},
		"endpoints-selector is missing or empty;": {"app=db", "''"},
	} {
		t.Run(reason, func(t *testing.T) {
			c := newCluster(t, changes...)
			c.pod("a", nil, "10.60.0.2/16")
			c.reconcile()
			c.reconcile()
			c.expect()
			if len(c.events.Events) != 1 {
				t.Fatalf("%d events, want 1", len(c.events.Events))
			}
			if told := <-c.events.Events; !strings.Contains(told, reason) || len(told) > 1024 {
				t.Errorf("got event %s, want one that names the reason", told)
			}
		})
	}
}

// TestPortsOfSidecars: a port resolves to the same number as in Kubernetes, even if the pod comes from the cache.
// Containers take precedence over sidecars, and init containers that run to completion are ignored.
func TestPortsOfSidecars(t *testing.T) {
	container := func(port int32, policy *corev1.ContainerRestartPolicy) corev1.Container {
		return corev1.Container{RestartPolicy: policy, Ports: []corev1.ContainerPort{{Name: "metrics",
			ContainerPort: port, Protocol: corev1.ProtocolTCP}}}
	}
	always := ptr.To(corev1.ContainerRestartPolicyAlways)
	for name, test := range map[string]struct {
		init, containers []corev1.Container
		want             string
	}{
		"a sidecar": {init: []corev1.Container{container(1, always)}, want: "metrics=1 sql=5432"},
		"the first sidecar": {init: []corev1.Container{container(1, nil), container(2, always), container(3, always)},
			want: "metrics=2 sql=5432"},
		"an init container": {init: []corev1.Container{container(1, nil)}, want: "sql=5432"},
		"a container and a sidecar": {init: []corev1.Container{container(1, always)},
			containers: []corev1.Container{container(4, nil)}, want: "metrics=4 sql=5432"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.pod("a", func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
				pod.Spec.InitContainers, pod.Spec.Containers = test.init, test.containers
				kept, err := TransformPod(pod)
				c.must(err)
				*pod = *kept.(*corev1.Pod)
			}, "10.60.0.2/16")
			c.reconcile()
			c.expect("db-dra-network-0 IPv4 " + test.want + ": 10.60.0.2 a +ready +serving")
		})
	}
}

// TestNameThatIsTaken: a foreign slice causes only one event for the author for as long as it exists. One of our own
// slices that is not in the cache yet causes no event.
func TestNameThatIsTaken(t *testing.T) {
	c := newCluster(t)
	c.pod("a", nil, "10.60.0.2/16")
	request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "db"}}
	retry := func(want time.Duration) {
		t.Helper()
		if result, err := c.r.Reconcile(t.Context(), request); err != nil || result.RequeueAfter != want {
			t.Errorf("requeued after %v, want %v; error = %v", result.RequeueAfter, want, err)
		}
	}
	foreign := &discoveryapi.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "db-dra-network-0"},
		AddressType: discoveryapi.AddressTypeIPv4}
	for range 2 { // a resolved problem is forgotten, so its recurrence emits another event
		c.must(c.api.Create(t.Context(), foreign.DeepCopy()))
		retry(later)
		retry(later)
		if len(c.events.Events) != 1 {
			t.Fatalf("%d events, want 1", len(c.events.Events))
		}
		if told := <-c.events.Events; !strings.Contains(told, `cannot create EndpointSlice "db-dra-network-0"`) {
			t.Errorf("got event %s, want one that names the EndpointSlice", told)
		}
		c.must(c.api.Delete(t.Context(), foreign.DeepCopy()))
		retry(0)
		c.expect("db-dra-network-0 IPv4 metrics=9090 sql=5432: 10.60.0.2 a +ready +serving")
		c.must(c.api.Delete(t.Context(), foreign.DeepCopy()))
	}
	retry(0)
	c.r.Client = staleSlices{c.api}
	retry(objects.Soon)
	if len(c.events.Events) != 0 {
		t.Errorf("got event %s, want none", <-c.events.Events)
	}
}

// TestTakenNameKeepsNoOther: slices with available names are created, no matter in which order the names are tried.
func TestTakenNameKeepsNoOther(t *testing.T) {
	for taken, want := range map[string]string{
		"db-dra-network-0": "db-dra-network-1 IPv6 metrics=9090 sql=5432: fd00::2 a +ready +serving",
		"db-dra-network-1": "db-dra-network-0 IPv4 metrics=9090 sql=5432: 10.60.0.2 a +ready +serving",
	} {
		c := newCluster(t)
		c.pod("a", nil, "10.60.0.2/16", "fd00::2/64")
		foreign := &discoveryapi.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: taken},
			AddressType: discoveryapi.AddressTypeIPv4}
		c.must(c.api.Create(t.Context(), foreign.DeepCopy()))
		request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "db"}}
		if result, err := c.r.Reconcile(t.Context(), request); err != nil || result.RequeueAfter != later {
			t.Errorf("requeued after %v, want %v; error = %v", result.RequeueAfter, later, err)
		}
		c.must(c.api.Delete(t.Context(), foreign))
		c.expect(want)
	}
}

// staleSlices is a client whose cache does not contain any slices yet.
type staleSlices struct{ client.Client }

func (s staleSlices) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if _, ofSlices := list.(*discoveryapi.EndpointSliceList); ofSlices {
		return nil
	}
	return s.Client.List(ctx, list, options...)
}

// TestOneAddressOfTwoPods: the endpoint refers to the ready pod, regardless of the order of the pods.
func TestOneAddressOfTwoPods(t *testing.T) {
	for _, names := range [][2]string{{"a", "b"}, {"b", "a"}} { // the API server lists them by name
		c := newCluster(t)
		c.pod(names[0], func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) { pod.Status.Conditions = nil },
			"10.60.0.2/16")
		c.pod(names[1], nil, "10.60.0.2/16")
		c.reconcile()
		c.expect("db-dra-network-0 IPv4 metrics=9090 sql=5432: 10.60.0.2 " + names[1] + " +ready +serving")
	}
	for _, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
		e := Endpoints{}
		for _, name := range names {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
			e.add(endpoint(&corev1.Service{}, pod, netip.MustParseAddr("10.60.0.2")))
		}
		if got := e["10.60.0.2"].TargetRef.Name; got != "a" {
			t.Errorf("pods %v: the endpoint refers to %s, want a", names, got)
		}
	}
}

// TestAnnotationRemoved: slices are deleted when the annotation is removed.
func TestAnnotationRemoved(t *testing.T) {
	c := newCluster(t)
	c.pod("a", nil, "10.60.0.2/16")
	c.reconcile()
	object := &corev1.Service{}
	c.must(c.api.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "db"}, object))
	object.Annotations = nil
	c.must(c.api.Update(t.Context(), object))
	c.reconcile()
	c.expect()
}

// TestObjectsConcernFewServices: in a namespace with many Services, a change to a pod or claim only triggers
// reconciliation of the Services whose endpoints it may affect.
func TestObjectsConcernFewServices(t *testing.T) {
	c := newCluster(t)
	for name, changes := range map[string][]string{
		"whole":     {"storage/port", "storage"},
		"step":      {"storage/port", "storage/other"},
		"topology":  {"storage/port", "fast"},
		"selector":  {"app=db", "app=web"},
		"invalid":   {"app=db", "app in"},
		"elsewhere": {"namespace: ns", "namespace: other"},
		"plain":     {"endpoints-topology", "something"},
	} {
		object := &corev1.Service{}
		changes = append(changes, "name: db", "name: "+name)
		c.must(yaml.UnmarshalStrict([]byte(strings.NewReplacer(changes...).Replace(service)), object))
		c.must(c.api.Create(t.Context(), object))
	}
	c.pod("a", nil, "10.60.0.2/16")
	pod, claim := &corev1.Pod{}, &resourceapi.ResourceClaim{}
	key := types.NamespacedName{Namespace: "ns", Name: "a"}
	c.must(errors.Join(c.api.Get(t.Context(), key, pod), c.api.Get(t.Context(), key, claim)))
	none := pod.DeepCopy()
	none.Spec.ResourceClaims = nil
	unallocated := claim.DeepCopy()
	unallocated.Status.Allocation = nil
	for _, test := range []struct {
		object client.Object
		want   string
	}{
		{pod, "[db step topology whole]"}, {claim, "[db selector whole]"}, {none, "[]"}, {unallocated, "[]"},
	} {
		got := []string{}
		for _, request := range c.r.ofObject(t.Context(), test.object) {
			got = append(got, request.Name)
		}
		slices.Sort(got)
		if fmt.Sprint(got) != test.want {
			t.Errorf("%T is mapped to requests %v, want %s", test.object, got, test.want)
		}
	}
}
