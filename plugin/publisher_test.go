package plugin

import (
	"context"
	"errors"
	"testing"
	"testing/fstest"

	"github.com/vishvananda/netlink"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/discovery"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// noLinks is a host without links.
type noLinks struct{ err error }

func (n *noLinks) LinkList() ([]netlink.Link, error)                    { return nil, n.err }
func (n *noLinks) RouteList(netlink.Link, int) ([]netlink.Route, error) { return nil, n.err }
func (n *noLinks) AddrList(netlink.Link, int) ([]netlink.Addr, error)   { return nil, n.err }

// newTestPublisher has a host without links and one claim that holds up0; every published set is appended to published.
func newTestPublisher(f *fixture, links *noLinks, publishErr *error) (p *publisher, published *[]resourceslice.DriverResources) {
	published = &[]resourceslice.DriverResources{}
	c := testCluster()
	f.must(c.policies.GetStore().Add(&policyapi.DeviceExposurePolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "all"},
		Spec: policyapi.DeviceExposurePolicySpec{
			Action: policyapi.ActionExpose, Selector: policyapi.DeviceSelector{CEL: "true"},
			Exposure: &policyapi.Exposure{SupportedCNIPlugins: []policyapi.CNIPlugin{{Name: "host-device", Exclusive: true}}},
		},
	}))
	p = newPublisher(c, f.claims, discovery.Sources{Sys: fstest.MapFS{"class/net": {Mode: 0o755 | 1<<31}}, Links: links}, nil)
	p.startPublishing(func(_ context.Context, resources resourceslice.DriverResources) error {
		*published = append(*published, resources)
		return *publishErr
	})
	return p, published
}

// A device in use inside a pod is not on the host, and stays published.
func TestDevicesInUseStayPublished(t *testing.T) {
	f := newFixture(t)
	f.prepared("claim-a", "a", "up0")
	p, published := newTestPublisher(f, &noLinks{}, new(error))
	f.must(p.refresh(context.Background()))
	if len(*published) != 1 || len((*published)[0].Pools["n/up0"].Slices) != 1 {
		t.Fatalf("published %+v", *published)
	}
	if _, _, err := p.resolve(&resourceapi.DeviceRequestAllocationResult{Pool: "n/up0", Device: "up0"}); err != nil {
		t.Error(err)
	}
	f.must(f.claims.release("claim-a"))
	f.must(p.refresh(context.Background()))
	if len(*published) != 2 || len((*published)[1].Pools) != 0 {
		t.Errorf("published after the release %+v", *published)
	}
}

// What a claim was given of a link's bandwidth does not change while it has it.
func TestBandwidthInUseStaysAsItWas(t *testing.T) {
	f := newFixture(t)
	function := discovery.Device{
		Name: "pf0v0", Interface: "pf0v0", Type: discovery.TypeVF, Kind: "device", PCIAddress: "0000:01:00.1", PFName: "pf0", PFAddress: "0000:01:00.0",
	}
	f.must(f.claims.hold(ClaimRecord{
		Claim:   cnichain.Claim{Namespace: "ns", Name: "c", UID: "c"},
		Devices: []HeldDevice{{Pool: "n/pf0", Name: "pf0v0", Exclusive: true, Bandwidth: 1234, Facts: function}},
	}, asItIs))
	p, published := newTestPublisher(f, &noLinks{}, new(error))
	f.must(p.refresh(context.Background()))
	for _, pool := range (*published)[0].Pools {
		for _, slice := range pool.Slices {
			for _, device := range slice.Devices {
				if amount := device.Capacity["dra.networking/bandwidth"].Value; amount.Value() != 1234 {
					t.Errorf("device %s has a bandwidth of %s", device.Name, amount.String())
				}
			}
		}
	}
	held, device, err := p.resolve(&resourceapi.DeviceRequestAllocationResult{Pool: "n/pf0", Device: "pf0v0"})
	if err != nil || held.Bandwidth != 1234 || device.Attributes["bandwidth"] != int64(1234) {
		t.Errorf("held %+v, attributes %v, %v", held, device.Attributes, err)
	}
}

func TestOnlyChangesArePublishedAndFailuresAgain(t *testing.T) {
	f := newFixture(t)
	failure := errors.New("no")
	p, published := newTestPublisher(f, &noLinks{}, &failure)
	if err := p.refresh(context.Background()); err == nil {
		t.Error("the failure is lost")
	}
	failure = nil
	for range 3 {
		f.must(p.refresh(context.Background()))
	}
	if len(*published) != 2 {
		t.Errorf("published %d times, want once again after the failure and then not", len(*published))
	}
}

// What can't be read is not gone.
func TestUnreadableHostKeepsWhatIsPublished(t *testing.T) {
	f := newFixture(t)
	f.prepared("claim-a", "a", "up0")
	links := &noLinks{}
	p, published := newTestPublisher(f, links, new(error))
	f.must(p.refresh(context.Background()))
	links.err = errors.New("interrupted")
	if err := p.refresh(context.Background()); err == nil {
		t.Error("the failure is lost")
	}
	if len(*published) != 1 {
		t.Errorf("published %d times", len(*published))
	}
}

// Policies for some nodes can't be resolved without the node's labels: an exclude policy would not exclude.
func TestUnknownNodeKeepsWhatIsPublished(t *testing.T) {
	f := newFixture(t)
	p, published := newTestPublisher(f, &noLinks{}, new(error))
	f.must(p.cluster.node.GetStore().Replace(nil, ""))
	if err := p.refresh(context.Background()); err == nil || len(*published) != 0 {
		t.Errorf("error %v, published %d times", err, len(*published))
	}
}

// A link has no speed while it is down or on its way home; what is published must not change with that.
func TestSpeedsAreRemembered(t *testing.T) {
	f := newFixture(t)
	p, _ := newTestPublisher(f, &noLinks{}, new(error))
	read := func(speed int) int {
		facts := discovery.Facts{Devices: []discovery.Device{{Name: "eth1", LinkSpeed: speed}}}
		p.rememberSpeeds(&facts)
		return facts.Devices[0].LinkSpeed
	}
	for _, step := range []struct{ read, want int }{{0, 0}, {25000, 25000}, {0, 25000}, {10000, 10000}, {0, 10000}} {
		if got := read(step.read); got != step.want {
			t.Errorf("read %d: speed is %d, want %d", step.read, got, step.want)
		}
	}
}
