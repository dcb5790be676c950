package plugin

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain"
	chainapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// onRequest offers the functions of links p0 and p1 with bandwidth on request and limits each function to the requested
// bandwidth.
func (f *fixture) onRequest() {
	f.Helper()
	f.must(os.WriteFile(filepath.Join(f.pluginDir(), "sriov"), nil, 0o755))
	topology := testTopology()
	f.must(yaml.UnmarshalStrict([]byte(`
- {name: link, type: sriov, selector: {cel: "true"}, config: {max_tx_rate: "{{ device.capacity.bandwidth }}"}}
`), &topology.Spec.Steps))
	f.must(f.cluster.topologies.GetStore().Replace([]any{topology}, ""))
	f.offer("sriov")
	policy := f.cluster.policies.GetStore().List()[0].(*policyapi.DeviceExposurePolicy)
	policy.Spec.Selector.CEL = `device.attributes["dra.networking"].type == "vf"`
	f.must(yaml.UnmarshalStrict([]byte(`{default: 1000, validRange: {min: 100, step: 100}}`),
		&policy.Spec.Exposure.LinkBandwidth))
	f.setPublisher(f.newPublisher(func(context.Context, []netip.Addr) (facts discovery.Facts, err error) {
		for i, pf := range []discovery.IfName{"p0", "p1"} {
			address := discovery.PCIAddress(fmt.Sprintf("0000:0%d:00.0", i+1))
			facts.Devices = append(facts.Devices, discovery.Device{Name: pf, Interface: pf, Type: discovery.TypePF,
				PCIAddress: address, LinkSpeed: 10_000, NumVFs: 2, SRIOVCapable: true, VFIndex: discovery.None})
			for index := range 2 {
				name := discovery.IfName(fmt.Sprintf("%sv%d", pf, index))
				facts.Devices = append(facts.Devices, discovery.Device{Name: name, Interface: name,
					Type: discovery.TypeVF, PFName: pf, PFAddress: address, VFIndex: index,
					PCIAddress: discovery.PCIAddress(fmt.Sprintf("0000:0%d:00.%d", i+1, index+1))})
			}
		}
		return facts, nil
	}))
	f.must(f.dra.Publisher.Refresh(context.Background()))
	for _, function := range []string{"p0v0", "p0v1", "p1v0", "p1v1"} {
		f.node.AddHostLink(function)
	}
}

// taking returns a claim for functions and for amounts of bandwidth on links, such as "p0=7300".
func taking(name string, functions string, amounts ...string) *resourceapi.ResourceClaim {
	claim := allocatedClaim(name, "p0", "a")
	allocated := &claim.Status.Allocation.Devices
	allocated.Results = nil
	for i, amount := range amounts {
		link, text, _ := strings.Cut(amount, "=")
		allocated.Results = append(allocated.Results, resourceapi.DeviceRequestAllocationResult{Request: "bandwidth",
			Driver: chainapi.DriverName, Pool: "n/" + link, Device: link + policyapi.BandwidthSuffix,
			ShareID: ptr.To(types.UID(fmt.Sprintf("%s-%d", name, i))),
			ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{
				"dra.networking/bandwidth": resource.MustParse(text)}})
	}
	for _, function := range strings.Fields(functions) {
		allocated.Results = append(allocated.Results, resourceapi.DeviceRequestAllocationResult{Request: "r",
			Driver: chainapi.DriverName, Pool: "n/" + function[:2], Device: function})
	}
	class := allocated.Config[0].DeepCopy()
	class.Requests, class.Opaque.Parameters.Raw = []string{"bandwidth"}, []byte(`{"kind":"BandwidthParameters"}`)
	allocated.Config = append(allocated.Config, *class)
	return claim
}

// If a claim requests both a function and bandwidth on the function's link, the configuration of the function's step
// contains exactly the requested amount. Nothing is attached for the bandwidth itself.
func TestBandwidthOnRequest(t *testing.T) {
	f := newFixture(t)
	f.onRequest()
	claim := taking("c", "p0v0 p1v1 p0v1", "p0=7300", "p1=100", "p0=2k")
	if _, err := f.prepareNow(claim); err != nil {
		t.Fatal(err)
	}
	record, _ := f.claims.Get("c")
	var rates []string
	for i := range record.Plans[0].Steps {
		step := &record.Plans[0].Steps[i]
		config, err := cnichain.Preview(step)
		f.must(err)
		rates = append(rates, step.Device.Name+" "+string(config))
	}
	for i, want := range []string{`p0v0 {"deviceID":"0000:01:00.1","max_tx_rate":7300`,
		`p1v1 {"deviceID":"0000:02:00.2","max_tx_rate":100`, `p0v1 {"deviceID":"0000:01:00.2","max_tx_rate":2000`} {
		if i >= len(rates) || !strings.HasPrefix(rates[i], want) {
			t.Errorf("step %d of %q does not start with %s", i, rates, want)
		}
	}
	if len(record.Devices) != 6 {
		t.Errorf("the claim holds %d devices, want 6", len(record.Devices))
	}
	if !claims.IsRecordOf(&record, claim) || claims.IsRecordOf(&record, taking("c", "p0v0 p1v1 p0v1", "p1=100")) {
		t.Error("IsRecordOf does not compare the record with the allocated bandwidth")
	}
	f.must(f.dra.unprepare(context.Background(), "c"))
	if _, err := f.prepareNow(taking("c2", "p0v0", "p0=7300")); err != nil {
		t.Error(err)
	}
	more, err := f.dra.compile(t.Context(), taking("more", "p0v1", "p0=2800"))
	f.must(err)
	const exceeded = "it has 10k of bandwidth, and with this claim 10100 would be in use"
	if err := f.claims.Hold(more, asItIs); err == nil || !strings.Contains(err.Error(), exceeded) {
		t.Errorf("claim that exceeds the bandwidth of the link: error = %v", err)
	}
}

// Claims whose bandwidth amounts cannot be matched to their functions are rejected and hold no devices.
func TestBandwidthThatNoFunctionGets(t *testing.T) {
	f := newFixture(t)
	f.onRequest()
	const counts = "request one amount for each function, with matchAttribute: dra.networking/pfName"
	f.expectRefused(taking("a", "", "p0=7300"), counts)
	f.expectRefused(taking("b", "p1v0", "p0=7300"), counts)
	f.expectRefused(taking("c", "p0v0 p0v1", "p0=7300"), "has 1 amounts of it and 2 functions of that link")
	f.expectRefused(taking("d", "p0v0"), "capacity.bandwidth")
	notBandwidth := taking("e", "p0v0", "p0=7300")
	notBandwidth.Status.Allocation.Devices.Results[0].Device = "p0v1"
	f.expectRefused(notBandwidth, "it is not the bandwidth of a link")
	function := taking("f", "p0v0")
	function.Status.Allocation.Devices.Results[0].Device = "p0-bandwidth"
	f.expectRefused(function, `Unsupported value: "sriov"`)
}

// expectRefused prepares a claim that must be rejected.
func (f *fixture) expectRefused(claim *resourceapi.ResourceClaim, want string) {
	f.Helper()
	if _, err := f.prepareNow(claim); err == nil || !strings.Contains(err.Error(), want) {
		f.Errorf("claim %s: error = %v, want %s", claim.Name, err, want)
	}
	if _, held := f.claims.Get(string(claim.UID)); held {
		f.Errorf("rejected claim %s holds devices", claim.Name)
	}
}

// A claim for bandwidth on a device that another component attaches has no gate, because that gate would never open.
func TestBandwidthOfDevicesThatOthersAttach(t *testing.T) {
	f := newFixture(t)
	f.onRequest()
	topology := testTopology()
	topology.Spec.Attachment = chainapi.AttachmentExternal
	topology.Spec.Steps = []chainapi.Step{{Name: "link", Type: "sriov", Selector: &chainapi.StepSelector{CEL: "true"}}}
	f.must(f.cluster.topologies.GetStore().Replace([]any{topology}, ""))
	ids, err := f.prepareNow(taking("c", "p0v0", "p0=7300"))
	if err != nil || !slices.Equal(ids, []string{"dra.networking/external-c=0000:01:00.1"}) {
		t.Errorf("got CDI devices %q, error %v", ids, err)
	}
}
