package plugin

import (
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	chainapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

const (
	clean     = "host [up0 up1] pods [] leases []"
	attachedA = "host [up1] pods [dra-a-0[net1]] leases [a-0/net1]"
)

// asItIs leaves a record unchanged.
func asItIs(*claims.Record) error { return nil }

// podNamed returns the pod for a sandbox named "pod-attempt".
func podNamed(sandbox string) executor.Pod {
	name, _, _ := strings.Cut(sandbox, "-")
	return executor.Pod{Namespace: "ns", Name: name, UID: name}
}

// attempts matches the names of pins; the suffix after the dot identifies the attempt, which tests ignore.
var attempts = regexp.MustCompile(`(dra-[a-z0-9-]+)\.[0-9a-z]+`)

func testPlugins() map[string]cnichain.Plugin {
	plugins := map[string]cnichain.Plugin{}
	for _, name := range []string{"host-device", "tuning", "host-local"} {
		plugins[name] = cnichain.Plugin{Path: cnitest.PluginDir + "/" + name, Versions: []string{"1.1.0"}}
	}
	return plugins
}

func testTopology() *chainapi.NetworkTopology {
	topology := &chainapi.NetworkTopology{ObjectMeta: metav1.ObjectMeta{Name: "t"}}
	if err := yaml.UnmarshalStrict([]byte(`
- {name: link, type: host-device, selector: {cel: "true"}, config: {ipam: {type: host-local}}}
- {name: tune, type: tuning, dependOn: [link], config: {mtu: 1400}}
`), &topology.Spec.Steps); err != nil {
		panic(err)
	}
	return topology
}
