package status

import (
	"errors"
	"testing"

	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

// A rejected claim stays listed between attempts until it is prepared. A claim whose chain failed is not listed, since
// the failure is shown with its sandbox.
func TestRefusedClaims(t *testing.T) {
	f := newFixture(t)
	s := New(Config{Client: fake.NewClientset(), Events: record.NewFakeRecorder(10), Claims: f.claims,
		Attachments: f.boxes, Clock: f.clock, Node: "n"})
	for _, name := range []string{"b", "a", "c"} {
		s.Failed(cnichain.Claim{Namespace: "ns", Name: name, UID: name}, []claims.HeldDevice{{Pool: "n/" + name,
			Name: name}}, map[bool]string{true: "StepFailed",
			false: ReasonPrepare}[name == "c"], errors.New("device is held"))
	}
	if refused := s.Refused(); len(refused) != 2 || refused[0].Claim.Name != "a" || refused[1].Claim.Name != "b" ||
		refused[0].At != f.clock.Now() || len(refused[0].Devices) != 1 || refused[0].Devices[0].Pool != "n/a" {
		t.Errorf("rejected claims = %+v, want a and b", refused)
	}
	s.Changed("a")
	if refused := s.Refused(); len(refused) != 1 || refused[0].Claim.Name != "b" {
		t.Errorf("rejected claims after preparing a = %+v, want b", refused)
	}
}
