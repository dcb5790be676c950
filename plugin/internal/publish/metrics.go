package publish

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/dra-networking/dra-network-driver/plugin/internal/telemetry"
	"github.com/dra-networking/dra-network-driver/policy"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// These are the possible sources of problems.
const (
	fromDiscovery = "discovery"
	fromPolicies  = "policies"
	fromSlices    = "slices"
	fromServer    = "apiserver"
)

// Metrics contains the metrics about discovered and published devices and policy decisions.
type Metrics struct {
	devices   *prometheus.GaugeVec
	published *prometheus.GaugeVec
	outcomes  *prometheus.GaugeVec
	problems  *prometheus.GaugeVec
	refreshes *prometheus.HistogramVec
	changes   prometheus.Counter
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		devices: telemetry.NewGauge("discovered_devices", "Network devices of the node, by type.", "type"),
		published: telemetry.NewGauge("published_devices", "Devices in the node's ResourceSlices, by policy and "+
			"sharing.", "policy", "mode"),
		outcomes: telemetry.NewGauge("policy_devices", "Devices of the node, by the decision of the policies.",
			"policy", "result"),
		problems: telemetry.NewGauge("problems", "Configuration problems, by source; the log and events contain the "+
			"messages.", "source"),
		refreshes: telemetry.NewHistogram("refresh_seconds", "Time to read the node and compute its slices.", "result"),
		changes:   telemetry.NewCounter("slice_changes_total", "Number of changes to the node's ResourceSlices."),
	}
	registry.MustRegister(m.devices, m.published, m.outcomes, m.problems, m.refreshes, m.changes)
	return m
}

func (m *Metrics) computed(decision *policy.Decision, result *draslices.Result, problems map[string]int) {
	for _, vector := range []*prometheus.GaugeVec{m.devices, m.published, m.outcomes} {
		vector.Reset()
	}
	for i := range decision.Devices {
		m.devices.WithLabelValues(decision.Devices[i].Device.Type).Inc()
		for _, reason := range decision.Devices[i].Reasons {
			m.outcomes.WithLabelValues(reason.Policy, string(reason.Outcome)).Inc()
		}
	}
	for i := range result.Entries {
		mode := "shared"
		if result.Entries[i].Persona.Exclusive {
			mode = "exclusive"
		}
		m.published.WithLabelValues(result.Entries[i].Persona.Policy, mode).Inc()
	}
	for _, source := range []string{fromDiscovery, fromPolicies, fromSlices, fromServer} {
		m.problems.WithLabelValues(source).Set(float64(problems[source]))
	}
}
