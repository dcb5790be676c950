package plugin

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
)

// The metrics' names and labels are a public interface: changing them breaks users' dashboards.
func TestMetrics(t *testing.T) {
	f := newFixture(t)
	machine := discoverytest.Machine(1, 2)
	p := f.newPublisher(func(ctx context.Context, _ []netip.Addr) (discovery.Facts, error) {
		return discovery.Read(ctx, machine.Sources())
	})
	p.StartPublishing(func(context.Context, resourceslice.DriverResources) error { return nil })
	binary := filepath.Join(f.pluginDir(), "host-device")
	f.must(os.Remove(binary)) // a problem
	f.must(p.Refresh(context.Background()))
	f.must(os.WriteFile(binary, nil, 0o755))
	if offered := len(p.Offered()); offered != 3 {
		t.Errorf("got %d offered devices, want 3", offered)
	}
	f.prepared("claim-a", "a", "up0")
	f.runs("a-0")
	sandbox := f.sandbox("a-0")
	connection := &nriConnection{nriPlugin: f.nri}
	f.must(connection.RunPodSandbox(context.Background(), sandbox))
	f.must(connection.StopPodSandbox(context.Background(), sandbox))
	measured := measuredCalls{Recorder: discardCalls{}, metrics: f.metrics}
	measured.Record(executor.Call{Plugin: "/opt/cni/bin/macvlan", Command: "ADD"})
	measured.Record(executor.Call{Plugin: "/opt/cni/bin/macvlan", Command: "ADD", Err: errors.New("no")})
	f.metrics.watch(f.claims, f.boxes, f.dra.Executor)
	if problems, err := testutil.GatherAndLint(f.metrics.registry); err != nil || len(problems) > 0 {
		t.Errorf("metrics lint reports %v, error %v", problems, err)
	}
	if err := testutil.GatherAndCompare(f.metrics.registry, strings.NewReader(`
# HELP dra_network_build_info Always 1; the label has the version of the driver, as --version prints it.
# TYPE dra_network_build_info gauge
dra_network_build_info{version="v1"} 1
# HELP dra_network_claims Claims that are prepared on the node.
# TYPE dra_network_claims gauge
dra_network_claims 1
# HELP dra_network_discovered_devices Network devices of the node, by type.
# TYPE dra_network_discovered_devices gauge
dra_network_discovered_devices{type="pf"} 1
dra_network_discovered_devices{type="vf"} 2
# HELP dra_network_policy_devices Devices of the node, by the decision of the policies.
# TYPE dra_network_policy_devices gauge
dra_network_policy_devices{policy="all",result="exposes"} 3
# HELP dra_network_problems Configuration problems, by source; the log and events contain the messages.
# TYPE dra_network_problems gauge
dra_network_problems{source="apiserver"} 0
dra_network_problems{source="discovery"} 0
dra_network_problems{source="policies"} 0
dra_network_problems{source="slices"} 1
# HELP dra_network_published_devices Devices in the node's ResourceSlices, by policy and sharing.
# TYPE dra_network_published_devices gauge
dra_network_published_devices{mode="exclusive",policy="all"} 3
# HELP dra_network_quarantined Devices in quarantine because their cleanup failed.
# TYPE dra_network_quarantined gauge
dra_network_quarantined 0
# HELP dra_network_slice_changes_total Number of changes to the node's ResourceSlices.
# TYPE dra_network_slice_changes_total counter
dra_network_slice_changes_total 1
`), "dra_network_build_info", "dra_network_claims", "dra_network_discovered_devices", "dra_network_policy_devices",
		"dra_network_problems",
		"dra_network_published_devices",
		"dra_network_quarantined", "dra_network_slice_changes_total"); err != nil {
		t.Error(err)
	}
	for name, series := range map[string]int{
		"dra_network_step_seconds": 2, "dra_network_attach_seconds": 2, "dra_network_nri_seconds": 2,
		"dra_network_refresh_seconds": 1,
	} {
		if got, err := testutil.GatherAndCount(f.metrics.registry, name); err != nil || got != series {
			t.Errorf("%s has %d series, error %v; want %d", name, got, err, series)
		}
	}
}

type discardCalls struct{}

func (discardCalls) Record(executor.Call) {}

// The table in docs/observing.md lists exactly the driver's metrics and their labels.
func TestMetricsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/observing.md")
	if err != nil {
		t.Fatal(err)
	}
	code := regexp.MustCompile("`([a-z_]+)`")
	documented := map[string]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.Contains(cells[1], "`dra_network_") {
			continue
		}
		var labels []string
		for _, match := range code.FindAllStringSubmatch(cells[2], -1) {
			labels = append(labels, match[1])
		}
		for _, match := range code.FindAllStringSubmatch(cells[1], -1) {
			documented[match[1]] = strings.Join(labels, ",")
		}
	}
	f := newFixture(t)
	m := newMetrics("v1")
	m.watch(f.claims, f.boxes, f.dra.Executor)
	described := make(chan *prometheus.Desc, 1000)
	m.registry.Describe(described)
	close(described)
	measured := map[string]string{}
	form := regexp.MustCompile(`fqName: "(dra_network_[a-z_]+)".*variableLabels: {([a-z,]*)}`)
	for desc := range described {
		if match := form.FindStringSubmatch(desc.String()); match != nil {
			measured[match[1]] = match[2]
		}
	}
	if diff := cmp.Diff(measured, documented); diff != "" {
		t.Errorf("wrong metrics in docs/observing.md (-measured +documented):\n%s", diff)
	}
}
