package claimspec

import (
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

func TestUnusedBandwidth(t *testing.T) {
	topology := func(name, config string) *v1alpha1.NetworkTopology {
		parsed := &v1alpha1.NetworkTopology{}
		if err := yaml.UnmarshalStrict(fmt.Appendf(nil, `{metadata: {name: %[1]s}, spec: {steps: [{name: vf, type: sriov},
			{name: limit, type: bandwidth, dependOn: [vf], config: %[2]s}]}, status: {deviceClasses: [%[1]s-vf]}}`, name,
			config), parsed); err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	using := topology("using", `{ingressRate: "{{ vf.capacity.bandwidth.bits }}"}`)
	fixed := topology("fixed", `{ingressRate: 1000}`)
	const amount = `capacity: {requests: {dra.networking/bandwidth: "7300"}}`
	for name, test := range map[string]struct {
		requests   string
		topologies []*v1alpha1.NetworkTopology
		want       string
	}{
		"used":          {requests: `{name: r, exactly: {deviceClassName: using-vf, ` + amount + `}}`, want: ""},
		"not used":      {requests: `{name: r, exactly: {deviceClassName: fixed-vf, ` + amount + `}}`, want: "fixed uses"},
		"not requested": {requests: `{name: r, exactly: {deviceClassName: fixed-vf}}`},
		"other capacity": {requests: `{name: r, exactly: {deviceClassName: fixed-vf,
			capacity: {requests: {dra.networking/macvlans: "2"}}}}`},
		"unknown class": {requests: `{name: r, exactly: {deviceClassName: link-bandwidth, ` + amount + `}}`,
			topologies: []*v1alpha1.NetworkTopology{}},
		"from the link, not used": {requests: `{name: b, exactly: {deviceClassName: link-bandwidth, ` + amount + `}},
			{name: r, exactly: {deviceClassName: fixed-vf}}`, topologies: []*v1alpha1.NetworkTopology{fixed},
			want: "request b reserves bandwidth, but no step of NetworkTopology fixed uses {{ device.capacity.bandwidth }}"},
		"from the link, used": {requests: `{name: b, exactly: {deviceClassName: link-bandwidth, ` + amount + `}},
			{name: r, exactly: {deviceClassName: using-vf}}`},
		"alternatives": {requests: `{name: r, firstAvailable: [{name: x, deviceClassName: fixed-vf, ` + amount + `}]}`},
	} {
		claim := &resourceapi.ResourceClaim{}
		if err := yaml.UnmarshalStrict([]byte("{spec: {devices: {requests: ["+test.requests+"]}}}"), claim); err != nil {
			t.Fatal(err)
		}
		topologies := test.topologies
		if topologies == nil {
			topologies = []*v1alpha1.NetworkTopology{fixed, using}
		}
		got := strings.Join(UnusedBandwidth(claim, topologies), "\n")
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: remarks = %q, want %q", name, got, test.want)
		}
	}
}
