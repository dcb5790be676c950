package publish

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/journal"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// fixture contains the dependencies of a publisher: a journal, a clock, claims, and a cluster with a policy that
// exposes every device.
type fixture struct {
	*testing.T
	clock   *testingclock.FakeClock
	db      *journal.DB
	claims  *claims.Store
	cluster *fakeCluster
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{T: t, clock: testingclock.NewFakeClock(time.Unix(1000, 0)), cluster: newFakeCluster()}
	opened, err := journal.Open(filepath.Join(t.TempDir(), "journal.db"), testingclock.NewFakeClock(f.clock.Now()))
	f.must(err)
	f.db = opened.DB
	t.Cleanup(func() { f.must(f.db.Close()) })
	f.claims, _, err = claims.Load(f.db)
	f.must(err)
	return f
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// prepared records a claim for a link in the same way as Prepare.
func (f *fixture) prepared(claim, link string) {
	f.Helper()
	f.must(f.claims.Hold(claims.Record{
		Claim: cnichain.Claim{Namespace: "ns", Name: claim, UID: claim},
		Devices: []claims.HeldDevice{{Request: "r", Pool: "n/" + link, Name: link, Exclusive: true,
			Facts: discovery.Device{Name: discovery.IfName(link)}}},
	}, unchanged))
}

// unchanged leaves a record unchanged.
func unchanged(*claims.Record) error { return nil }

// fakeCluster is a cluster with objects set by tests.
type fakeCluster struct {
	node     *corev1.Node
	policies []policyapi.DeviceExposurePolicy
}

func newFakeCluster() *fakeCluster {
	return &fakeCluster{node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}},
		policies: []policyapi.DeviceExposurePolicy{{
			ObjectMeta: metav1.ObjectMeta{Name: "all"},
			Spec: policyapi.DeviceExposurePolicySpec{
				Action: policyapi.ActionExpose, Selector: policyapi.DeviceSelector{CEL: "true"},
				Exposure: &policyapi.Exposure{SupportedCNIPlugins: []policyapi.CNIPlugin{{Name: "host-device",
					Exclusive: true}}},
			},
		}}}
}

// ThisNode implements Cluster.
func (c *fakeCluster) ThisNode() (*corev1.Node, error) {
	if c.node == nil {
		return nil, errors.New("no node")
	}
	return c.node, nil
}

// ExposurePolicies implements Cluster.
func (c *fakeCluster) ExposurePolicies() []policyapi.DeviceExposurePolicy { return c.policies }

// PluginSchemas implements Cluster.
func (c *fakeCluster) PluginSchemas() cnichain.Schemas { return cnichain.DefaultSchemas() }
