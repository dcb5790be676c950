package slices_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// The kernel cannot move bridges and bonds, so they are not offered to plugins that would move them.
func TestImmovableDevicesAreNotOfferedToPluginsThatMoveThem(t *testing.T) {
	devices := []discovery.Device{
		{Name: "br0", Interface: "br0", Type: discovery.TypeBridge, BridgeName: "br0", BridgeType: "linux"},
		{Name: "bond0", Interface: "bond0", Type: discovery.TypeBond, Kind: "bond"},
		{Name: "eth1", Interface: "eth1", Type: discovery.TypeNIC},
		{Name: "ovs-system", Interface: "ovs-system", Type: discovery.TypeOVSDatapath},
		{Name: "team0", Interface: "team0", Type: discovery.TypeNIC, Kind: "team"},
		{Name: "vrf0", Interface: "vrf0", Type: discovery.TypeNIC, Kind: "vrf"},
	}
	all := features()
	all.MovingCNIs = sets.New("host-device")
	for name, test := range map[string]struct{ plugins, want string }{
		"only such": {"[{name: host-device, exclusive: true}]", "eth1"},
		"and one that does": {"[{name: host-device, exclusive: true}, {name: bridge, exclusive: true}]",
			"bond0 br0 eth1 ovs-system team0 vrf0"},
		"none such": {"[{name: bridge, exclusive: true}]", "bond0 br0 eth1 ovs-system team0 vrf0"},
	} {
		decision := policy.Resolve(discovery.Facts{Devices: devices},
			policies(t, "selector: {cel: 'true'}\nexposure: {supportedCNIPlugins: "+test.plugins+"}"),
			policy.Node{Name: "worker-1"})
		result, err := draslices.Build("worker-1", decision, all)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, entry := range result.Entries {
			names = append(names, entry.Name)
			if entry.Name == "br0" {
				if _, offered := entry.Spec.Attributes["cni.dra.networking/host-device"]; offered {
					t.Errorf("%s: br0 is offered to host-device", name)
				}
			}
		}
		if strings.Join(names, " ") != test.want {
			t.Errorf("%s: published %v, want %s", name, names, test.want)
		}
		told := false
		for _, problem := range result.Problems {
			told = told || problem.Device == "br0" &&
				strings.Contains(problem.Message, "CNI plugin host-device moves devices into pods")
		}
		if told != strings.Contains(test.plugins, "host-device") {
			t.Errorf("%s: problems are %v", name, result.Problems)
		}
	}
}
