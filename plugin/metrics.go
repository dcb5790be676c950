package plugin

import (
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/klog/v2"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/attach"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/internal/publish"
	"github.com/dra-networking/dra-network-driver/plugin/internal/telemetry"
)

// metrics contains the driver's metrics. Their names are part of the driver's public interface.
type metrics struct {
	registry    *prometheus.Registry
	publish     *publish.Metrics
	attach      *prometheus.HistogramVec
	steps       *prometheus.HistogramVec
	prepared    *prometheus.HistogramVec
	hooks       *prometheus.HistogramVec
	connections prometheus.Counter
}

func newMetrics(version string) *metrics {
	registry := prometheus.NewRegistry()
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "dra_network_build_info",
		Help: "Always 1; the label has the version of the driver, as --version prints it."}, []string{"version"})
	build.WithLabelValues(version).Set(1)
	m := &metrics{
		registry: registry, publish: publish.NewMetrics(registry), attach: attach.NewMetrics(registry),
		steps: telemetry.NewHistogram("step_seconds", "Duration of CNI plugin calls, by plugin and command.", "type",
			"command", "result"),
		prepared: telemetry.NewHistogram("claim_seconds", "Time to prepare or release a claim for the kubelet.",
			"operation", "result"),
		hooks: telemetry.NewHistogram("nri_seconds",
			"Time that the container runtime waited for the driver; its default timeout is 2 s.", "event", "result"),
		connections: telemetry.NewCounter("nri_connections_total", "Number of connections to the container runtime."),
	}
	registry.MustRegister(build, m.steps, m.prepared, m.hooks, m.connections,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector())
	return m
}

// watch registers the gauges whose values are read from the current state on each scrape.
func (m *metrics) watch(claims *claims.Store, sandboxes *attach.Sandboxes, runner *executor.Executor) {
	for name, gauge := range map[string]struct {
		help string
		read func() int
	}{
		"dra_network_claims": {"Claims that are prepared on the node.", func() int { return len(claims.All()) }},
		"dra_network_sandboxes": {"Pod sandboxes that are attached, or being attached or detached.",
			func() int { return sandboxes.Count() }},
		// Other leftovers hold only names or addresses, not devices.
		"dra_network_quarantined": {"Devices in quarantine because their cleanup failed.", func() int {
			return len(slices.DeleteFunc(runner.Leftovers(),
				func(leftover executor.Leftover) bool { return leftover.Quarantines() == nil }))
		}},
	} {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: gauge.help},
			func() float64 { return float64(gauge.read()) }))
	}
}

// measuredCalls forwards the records of CNI calls to a recorder, updates the metrics, and logs each call at level 6.
type measuredCalls struct {
	executor.Recorder
	metrics *metrics
	logger  klog.Logger
}

// Record implements executor.Recorder.
func (c measuredCalls) Record(call executor.Call) {
	telemetry.Observe(c.metrics.steps, call.Duration, call.Err, filepath.Base(call.Plugin), call.Command)
	c.logger.V(telemetry.LevelCalls).Info("Ran a CNI plugin", "plugin", call.Plugin, "command", call.Command, "claim",
		call.Claim.String(), "pod", call.Pod, "sandbox", call.SandboxID, "step", call.Step, "duration",
		call.Duration.Round(time.Microsecond), "err", call.Err)
	c.Recorder.Record(call)
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
