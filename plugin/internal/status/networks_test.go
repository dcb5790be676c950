package status

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/journal"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// networksOf creates the component for a pod with the given annotation and with an attached function and an attached
// link.
func networksOf(t *testing.T, annotation string) (*Networks, *fake.Clientset) {
	t.Helper()
	opened, err := journal.Open(filepath.Join(t.TempDir(), "journal.db"), clocktesting.NewFakeClock(time.Unix(1000, 0)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	store, _, err := claims.Load(opened.DB)
	if err != nil {
		t.Fatal(err)
	}
	record := claims.Record{Claim: cnichain.Claim{Namespace: "ns", Name: "c", UID: "claim-uid"},
		Devices: []claims.HeldDevice{
			{Pool: "n/vf", Name: "vf", Exclusive: true, Facts: discovery.Device{Name: "vf",
				PCIAddress: "0000:01:00.1", PFAddress: "0000:01:00.0"}},
			{Pool: "n/up", Name: "up", Facts: discovery.Device{Name: "up"}},
		},
		Plans: []cnichain.Plan{{Topology: "lan", Steps: []cnichain.PlanStep{
			{Name: "a", Device: &cnichain.Device{Pool: "n/vf", Name: "vf"}},
			{Name: "b", Device: &cnichain.Device{Pool: "n/up", Name: "up"}}}}}}
	if err := store.Hold(record, func(*claims.Record) error { return nil }); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "pod-uid"}}
	if annotation != "" {
		pod.Annotations = map[string]string{NetworkStatus: annotation, "other": "stays"}
	}
	client := fake.NewClientset(pod)
	box := nodestate.Sandbox{ID: "s", Pod: executor.Pod{Namespace: "ns", Name: "p", UID: "pod-uid"},
		Claims: []string{"claim-uid"}, State: nodestate.SandboxReady, Interfaces: []nodestate.Interface{
			{ClaimUID: "claim-uid", Pool: "n/vf", Device: "vf", Interface: "net1", MAC: "02:00:00:00:00:01",
				IPs: []string{"10.0.0.7/24", "fd00::7/64"}},
			{ClaimUID: "claim-uid", Pool: "n/up", Device: "up", Interface: "net2"},
		}}
	return NewNetworks(client, store, func() []nodestate.Sandbox { return []nodestate.Sandbox{box} }), client
}

// statusOf returns the annotation without white space.
func statusOf(t *testing.T, client *fake.Clientset) string {
	t.Helper()
	pod, err := client.CoreV1().Pods("ns").Get(context.Background(), "p", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(pod.Annotations[NetworkStatus]), "")
}

const ownEntries = `{"name":"ns/lan","interface":"net1","ips":["10.0.0.7","fd00::7"],"mac":"02:00:00:00:00:01",` +
	`"device-info":{"type":"pci","version":"1.1.0","pci":` +
	`{"pci-address":"0000:01:00.1","pf-pci-address":"0000:01:00.0"}},` +
	`"dra.networking/claim":"claim-uid"},` +
	`{"name":"ns/lan","interface":"net2","dra.networking/claim":"claim-uid"}`

// Entries from other writers are kept, including fields unknown to the driver; the driver's own entries are replaced.
func TestNetworkStatusIsMerged(t *testing.T) {
	theirs := `{"name":"cbr0","default":true,"dns":{},"x":1.50}`
	for before, want := range map[string]string{
		"":                 "[" + ownEntries + "]",
		"[" + theirs + "]": "[" + theirs + "," + ownEntries + "]",
		`[{"name":"ns/lan","dra.networking/claim":"earlier"},` + theirs + "]": "[" + theirs + "," + ownEntries + "]",
	} {
		networks, client := networksOf(t, before)
		for range 2 {
			if err := networks.write(context.Background(), "claim-uid"); err != nil {
				t.Fatal(err)
			}
		}
		if got := statusOf(t, client); got != want {
			t.Errorf("%s was changed to\n%s\nwant\n%s", before, got, want)
		}
		writes := 0
		for _, action := range client.Actions() {
			if patch, ok := action.(clienttesting.PatchAction); ok {
				writes++
				var sent metav1.PartialObjectMetadata
				if err := json.Unmarshal(patch.GetPatch(), &sent); err != nil || sent.UID != "pod-uid" ||
					patch.GetSubresource() != "status" {
					t.Errorf("wrong patch %s, error: %v", patch.GetPatch(), err)
				}
			}
		}
		if writes != 1 {
			t.Errorf("written %d times, want 1", writes)
		}
	}
}

// An annotation that is not a list is left unchanged.
func TestNetworkStatusThatIsNoList(t *testing.T) {
	networks, client := networksOf(t, `{"name": "x"}`)
	if err := networks.write(context.Background(), "claim-uid"); err == nil ||
		!strings.Contains(err.Error(), "which is not a list") {
		t.Errorf("error = %v, want \"which is not a list\"", err)
	}
	if got := statusOf(t, client); got != `{"name":"x"}` {
		t.Errorf("annotation = %s, want it unchanged", got)
	}
}

// A pod with an invalid annotation does not prevent other pods with the same claim from getting their entries.
func TestNetworkStatusBesideAPodWithoutAList(t *testing.T) {
	networks, client := networksOf(t, "")
	bad := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "bad", UID: "bad-uid",
		Annotations: map[string]string{NetworkStatus: "x"}}}
	if err := client.Tracker().Add(bad); err != nil {
		t.Fatal(err)
	}
	box := networks.sandboxes()[0]
	first := box
	first.Pod = executor.Pod{Namespace: "ns", Name: "bad", UID: "bad-uid"}
	networks.sandboxes = func() []nodestate.Sandbox { return []nodestate.Sandbox{first, box} }
	if err := networks.write(t.Context(), "claim-uid"); err == nil || !strings.Contains(err.Error(), "pod ns/bad: ") {
		t.Errorf("error = %v, want an error about pod ns/bad", err)
	}
	if got := statusOf(t, client); !strings.Contains(got, "net1") {
		t.Errorf("annotation of the other pod = %q, want net1", got)
	}
}

// The annotation is not written for a deleted pod or for another pod with the same name. If the driver lacks the
// permission, the error names the required setting.
func TestNetworkStatusOfOthers(t *testing.T) {
	networks, client := networksOf(t, "")
	box := networks.sandboxes()[0]
	box.Pod.UID = "earlier"
	networks.sandboxes = func() []nodestate.Sandbox { return []nodestate.Sandbox{box} }
	if err := networks.write(context.Background(), "claim-uid"); err != nil || statusOf(t, client) != "" {
		t.Errorf("annotation = %s, error = %v, want neither", statusOf(t, client), err)
	}
	box.Pod = executor.Pod{Namespace: "ns", Name: "gone", UID: "pod-uid"}
	if err := networks.write(context.Background(), "claim-uid"); err != nil {
		t.Error(err)
	}
	box.Pod = executor.Pod{Namespace: "ns", Name: "p", UID: "pod-uid"}
	client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New("no"))
	})
	if err := networks.write(context.Background(), "claim-uid"); err == nil ||
		!strings.Contains(err.Error(), "set features.networkStatus of the chart") {
		t.Errorf("error = %v, want a hint at features.networkStatus", err)
	}
}
