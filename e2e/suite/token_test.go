package suite

import (
	"context"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

// A compromised driver on one node cannot act on behalf of another node: it can neither publish devices for the other
// node nor write the status of claims on that node. It can do both for its own node.
func TestTokenOfAnotherNode(t *testing.T) {
	e := newEnv(t, "tokens")
	e.offerMacvlan("to0", "10.144.0.0/24")
	e.apply(pod("p", "to0"))
	e.ready("p")
	e.deviceStatus("p", `"type":"Ready"`) // the status may be written after the pod is Ready
	driver := e.driverOn(e.cluster.NodeName())
	other := e.driverOn("elsewhere")

	slice := func(node string) *resourceapi.ResourceSlice {
		return &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "forged-"},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: "dra.networking", NodeName: ptr.To(node), Pool: resourceapi.ResourcePool{Name: node + "/forged",
					ResourceSliceCount: 1},
			},
		}
	}
	ctx := context.Background()
	here := e.cluster.NodeName()
	forged := slice("elsewhere")
	forged.Spec.Pool = resourceapi.ResourcePool{Name: here + "/to0", Generation: 1 << 40, ResourceSliceCount: 1}
	forged.Spec.Devices = []resourceapi.Device{{Name: "to0", Taints: []resourceapi.DeviceTaint{{Key: "forged",
		Effect: resourceapi.DeviceTaintEffectNoExecute}}}}
	claims, err := e.client.ResourceV1().ResourceClaims(e.namespace).List(ctx, metav1.ListOptions{})
	if err != nil || len(claims.Items) != 1 {
		t.Fatalf("claims = %v, %v; want one", claims, err)
	}
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	create := func(as kubernetes.Interface, node string) error {
		_, err := as.ResourceV1().ResourceSlices().Create(ctx, slice(node), dryRun)
		return err
	}
	status := func(as kubernetes.Interface) error {
		claim := claims.Items[0].DeepCopy()
		claim.Status.Devices[0].Conditions[0].Message += " (forged)"
		_, err := as.ResourceV1().ResourceClaims(e.namespace).UpdateStatus(ctx, claim,
			metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	published, err := e.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
	if err != nil || len(published.Items) == 0 {
		t.Fatalf("slices = %v, %v; want at least one", published, err)
	}
	remove := func(as kubernetes.Interface) error {
		return as.ResourceV1().ResourceSlices().Delete(ctx, published.Items[0].Name,
			metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	}
	_, inPool := other.ResourceV1().ResourceSlices().Create(ctx, forged, dryRun)
	event := func(as kubernetes.Interface, node string) error {
		_, err := as.CoreV1().Events(e.namespace).Create(ctx, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: "forged", Namespace: e.namespace},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: e.namespace, Name: "p"},
			Source:         corev1.EventSource{Component: "dra.networking", Host: node},
		}, dryRun)
		return err
	}
	for name, test := range map[string]struct {
		err  error
		want string // part of the error message; empty if the request is accepted
	}{
		"own slice":                 {create(driver, here), ""},
		"slice of another node":     {create(driver, "elsewhere"), "may write ResourceSlices of that node only"},
		"this node's, from another": {create(other, here), "may write ResourceSlices of that node only"},
		// The taint would evict the pods that use the device on this node.
		"in a pool of this node":    {inPool, "may write ResourceSlices of pools whose names begin with elsewhere/ only"},
		"own event":                 {event(driver, here), ""},
		"event of another node":     {event(other, here), "may write events only whose source is dra.networking on that node"},
		"delete its own":            {remove(driver), ""},
		"delete another's":          {remove(other), "may write ResourceSlices of that node only"},
		"status of its own claim":   {status(driver), ""},
		"status of another's claim": {status(other), "cannot arbitrary-node:update"},
	} {
		refused := (apierrors.IsForbidden(test.err) || apierrors.IsInvalid(test.err)) &&
			strings.Contains(test.err.Error(), test.want)
		if test.want == "" && test.err != nil || test.want != "" && !refused {
			t.Errorf("%s: error = %v, want %q", name, test.err, test.want)
		}
	}
}

// driverOn returns a client with the token that the kubelet would pass to the driver on a node. The node does not have
// to exist, because the token is bound to a pod that specifies the node's name.
func (e *env) driverOn(node string) kubernetes.Interface {
	e.Helper()
	ctx := context.Background()
	bound := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "token-" + node, Namespace: stack.Namespace},
		Spec: corev1.PodSpec{
			ServiceAccountName: stack.Driver, NodeName: node,
			Containers: []corev1.Container{{Name: "main", Image: "localhost/toolbox:e2e",
				Command: []string{"sleep", "86400"}, ImagePullPolicy: corev1.PullIfNotPresent}},
			TerminationGracePeriodSeconds: ptr.To[int64](0),
		},
	}
	made, err := e.client.CoreV1().Pods(stack.Namespace).Create(ctx, bound, metav1.CreateOptions{})
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() {
		if err := e.client.CoreV1().Pods(stack.Namespace).Delete(ctx, bound.Name,
			metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil && !apierrors.IsNotFound(err) {
			e.Error(err)
		}
	})
	token, err := e.client.CoreV1().ServiceAccounts(stack.Namespace).CreateToken(ctx, stack.Driver,
		&authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod",
				APIVersion: "v1", Name: made.Name, UID: made.UID}},
		}, metav1.CreateOptions{})
	if err != nil {
		e.Fatal(err)
	}
	config, err := e.cluster.RESTConfig()
	if err != nil {
		e.Fatal(err)
	}
	config.CertData, config.KeyData, config.CertFile, config.KeyFile = nil, nil, "", ""
	config.BearerToken = token.Status.Token
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		e.Fatal(err)
	}
	return client
}
