package suite

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
)

// A driver that composes devices asks for a claim to be prepared that the pod does not list, so the kubelet does not
// manage the claim. The pod gets the interface before its container starts. The link is free once the pod and the claim
// have been deleted.
func TestClaimOfAComposingDriver(t *testing.T) {
	e := newEnv(t, "composing")
	e.offerMacvlan("co0", "10.186.0.0/24")
	before := e.state()
	allocation := e.allocationOf("first", "co0-uplink")
	// The scheduling gate prevents the kubelet from creating the sandbox before the claim is prepared. For drivers that
	// the kubelet calls, the kubelet itself guarantees this order.
	e.create(strings.Replace(pod("composed", ""), "spec:\n",
		"spec:\n  schedulingGates: [{name: example.com/composer}]\n",
		1))
	claim := e.reserved("part", "co0-uplink", allocation, "composed")
	driver := e.draPlugin()
	request := []*drapb.Claim{{Namespace: claim.Namespace, Name: claim.Name, Uid: string(claim.UID)}}
	prepared, err := driver.NodePrepareResources(t.Context(), &drapb.NodePrepareResourcesRequest{Claims: request})
	if err != nil {
		t.Fatal(err)
	}
	answer := prepared.Claims[string(claim.UID)]
	if answer.GetError() != "" || len(answer.GetDevices()) != 1 ||
		!strings.Contains(strings.Join(answer.Devices[0].CdiDeviceIds, " "), "when-attached") {
		t.Fatalf("unexpected response to the composing driver: %v", answer)
	}
	e.must("kubectl", "-n", e.namespace, "patch", "pod", "composed", "--type=json", "--patch",
		`[{"op": "remove", "path": "/spec/schedulingGates"}]`)
	e.ready("composed")
	if shown := e.inPod("composed", "ip", "-4", "-o", "addr", "show", "dev", "net1"); !strings.Contains(shown,
		" 10.186.0.") {
		t.Errorf("net1 of the pod = %s, want an address in 10.186.0.0/24", shown)
	}
	e.deleting("composed")
	e.gone("composed")
	released, err := driver.NodeUnprepareResources(t.Context(),
		&drapb.NodeUnprepareResourcesRequest{Claims: request})
	if err != nil || released.Claims[string(claim.UID)].GetError() != "" {
		t.Errorf("unpreparing the claim returned %v, %v", err, released)
	}
	e.deleteClaims("part")
	e.asItWas(before)
}

// reserved creates an allocated claim that is reserved for a pod that does not list it.
func (e *env) reserved(
	name, class string, allocation *resourceapi.AllocationResult, pod string,
) *resourceapi.ResourceClaim {
	e.Helper()
	ctx := context.Background()
	e.create(sharedClaim(name, class))
	claims := e.client.ResourceV1().ResourceClaims(e.namespace)
	claim, err := claims.Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		claim.Status.Allocation = allocation
		claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{
			{Resource: "pods", Name: pod, UID: e.pod(pod).UID}}
		claim, err = claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	}
	if err != nil {
		e.Fatal(err)
	}
	return claim
}

// draPlugin returns a client for the gRPC service that the driver offers to the kubelet on its node.
func (e *env) draPlugin() drapb.DRAPluginClient {
	e.Helper()
	sockets := e.filesOnNode("/var/lib/kubelet/plugins/dra.networking/dra*.sock")
	if len(sockets) != 1 {
		e.Fatalf("the driver has sockets %q, want one", sockets)
	}
	connection, err := grpc.NewClient("unix://"+sockets[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = connection.Close() })
	return drapb.NewDRAPluginClient(connection)
}
