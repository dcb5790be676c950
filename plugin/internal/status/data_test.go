package status

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// A claim's status shows how applications address the claim's RDMA devices.
func TestStatusTellsGIDs(t *testing.T) {
	f := newFixture(t)
	f.node.AddRDMA("mlx5_0", "up0", "", cnichain.RDMAExclusive)
	client := fake.NewClientset(storedClaim("claim-a"))
	s := New(Config{Client: client, Events: record.NewFakeRecorder(10), Claims: f.claims,
		Attachments: f.boxes, Clock: f.clock, Node: "n"})
	made := f.prepared("claim-a", "a", "up0")
	made.Plans[0].Steps[0].RDMA = &v1alpha1.StepRDMA{}
	f.must(f.attach("a-0", made))
	s.Changed("claim-a")
	f.must(s.write(context.Background(), "claim-a"))
	claim, err := client.ResourceV1().ResourceClaims("ns").Get(context.Background(), "claim-a", metav1.GetOptions{})
	f.must(err)
	gid := cnichain.GID{Port: 1, Index: 3, GID: "0000:0000:0000:0000:0000:ffff:0a00:0002", Type: "RoCE v2",
		Interface: "net1", Address: "10.0.0.2"}
	older := gid
	older.Index, older.Type = 2, "RoCE v1"
	want := Data{RDMA: []cnichain.VerbsDevice{{Name: "mlx5_0", Verbs: "uverbs0", GIDs: []cnichain.GID{gid, older}}}}
	var have Data
	f.must(json.Unmarshal(claim.Status.Devices[0].Data.Raw, &have))
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("wrong data (-want +got):\n%s", diff)
	}
	// The field names are an API.
	for _, name := range []string{"rdma", "name", "verbs", "gids", "port", "index", "gid", "type", "interface",
		"address"} {
		if !strings.Contains(string(claim.Status.Devices[0].Data.Raw), `"`+name+`":`) {
			t.Errorf("data does not contain %q: %s", name, claim.Status.Devices[0].Data.Raw)
		}
	}
}

// The longest possible data does not exceed the API limit.
func TestLongestDataFits(t *testing.T) {
	long := "0123:4567:89ab:cdef:0123:4567:89ab:cdef"
	verbs := &executor.Verbs{Unknown: strings.Repeat("why ", 1000)}
	for i := range cnichain.MaxGIDs {
		verbs.Devices = append(verbs.Devices, cnichain.VerbsDevice{Name: strings.Repeat("d", 63), Verbs: "uverbs1000",
			GIDs: []cnichain.GID{{Port: 255, Index: 1000 + i, GID: long, Type: "RoCE v2",
				Interface: strings.Repeat("i", 15), Address: long}}})
	}
	data := dataOf(verbs)
	if len(data) > resourceapi.AllocatedDeviceStatusDataMaxLength {
		t.Errorf("data has %d bytes, more than the maximum", len(data))
	}
	var parsed Data
	if err := json.Unmarshal([]byte(data), &parsed); err != nil || len(parsed.RDMA) != cnichain.MaxGIDs ||
		!strings.HasPrefix(parsed.RDMAUnknown, "why why") {
		t.Errorf("wrong data %s, error: %v", data, fmt.Sprint(err))
	}
	if dataOf(nil) != "" {
		t.Error("a device without RDMA has data")
	}
}
