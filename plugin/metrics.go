package plugin

import (
	"net/http"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/klog/v2"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/policy"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// metrics are what the driver counts and measures. The names are part of the driver's interface.
type metrics struct {
	registry  *prometheus.Registry
	devices   *prometheus.GaugeVec
	published *prometheus.GaugeVec
	outcomes  *prometheus.GaugeVec
	problems  *prometheus.GaugeVec
	refreshes *prometheus.HistogramVec
	changes   prometheus.Counter

	steps       *prometheus.HistogramVec
	attachments *prometheus.HistogramVec
	prepared    *prometheus.HistogramVec
	hooks       *prometheus.HistogramVec
	connections prometheus.Counter
}

// Where problems come from.
const (
	fromDiscovery = "discovery"
	fromPolicies  = "policies"
	fromSlices    = "slices"
	fromServer    = "apiserver"
)

func newMetrics() *metrics {
	const namespace = "dra_network"
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			// 1 ms to 1 min
			Namespace: namespace, Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 13),
		}, labels)
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
	}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		devices:  gauge("discovered_devices", "Network devices of the node, by type.", "type"),
		published: gauge("published_devices", "Devices in the node's ResourceSlices, by the policy that gives them "+
			"and whether pods share them.", "policy", "mode"),
		outcomes: gauge("policy_devices", "Devices of the node, by what a policy does with them.",
			"policy", "result"),
		problems: gauge("problems", "Things that an administrator should put right, by where they are; the log "+
			"and events have their words.", "source"),
		refreshes: histogram("refresh_seconds", "How long it took to read the node and compute its slices.",
			"result"),
		changes: counter("slice_changes_total", "How often the node's ResourceSlices were changed."),
		steps: histogram("step_seconds", "How long calls of CNI plugins took, by plugin and command.", "type",
			"command", "result"),
		attachments: histogram("attach_seconds", "How long it took to attach or detach all claims of a pod sandbox, "+
			"one attempt.", "operation", "result"),
		prepared: histogram("claim_seconds", "How long it took to prepare or release a claim for kubelet.",
			"operation", "result"),
		hooks: histogram("nri_seconds", "How long the container runtime waited for the driver; it gives up "+
			"after 2 s by default.", "event", "result"),
		connections: counter("nri_connections_total", "How often the driver has connected to the container runtime."),
	}
	m.registry.MustRegister(m.devices, m.published, m.outcomes, m.problems, m.refreshes, m.changes,
		m.steps, m.attachments, m.prepared, m.hooks, m.connections,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector())
	return m
}

// watch registers gauges of what is there at the moment of a scrape.
func (m *metrics) watch(claims *claims, sandboxes *sandboxes, executor *executor.Executor) {
	for name, gauge := range map[string]struct {
		help string
		read func() int
	}{
		"dra_network_claims": {"Claims that are prepared on the node.", func() int { return len(claims.all()) }},
		"dra_network_sandboxes": {"Pod sandboxes that are attached, or being attached or detached.",
			func() int { return len(sandboxes.list()) }},
		"dra_network_quarantined": {"Devices that are held back because they could not be cleaned.",
			func() int { return quarantines(executor) }},
	} {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: gauge.help},
			func() float64 { return float64(gauge.read()) }))
	}
}

func quarantines(executor *executor.Executor) int {
	held := 0
	for _, leftover := range executor.Leftovers() {
		if leftover.Quarantines() != nil {
			held++
		}
	}
	return held
}

// observe notes how long something took and how it ended.
func observe(histogram *prometheus.HistogramVec, took time.Duration, err error, labels ...string) {
	result := "success"
	if err != nil {
		result = "failure"
	}
	histogram.WithLabelValues(append(labels, result)...).Observe(took.Seconds())
}

// measuredCalls passes calls of CNI plugins on to a recorder, measures them, and logs each at level 6.
type measuredCalls struct {
	executor.Recorder
	metrics *metrics
	logger  klog.Logger
}

// Record implements cnichain.Recorder.
func (c measuredCalls) Record(call executor.Call) {
	observe(c.metrics.steps, call.Duration, call.Err, filepath.Base(call.Plugin), call.Command)
	c.logger.V(logCalls).Info("Ran a CNI plugin", "plugin", call.Plugin, "command", call.Command, "claim",
		call.Claim.String(),
		"pod", call.Pod, "sandbox", call.SandboxID, "step", call.Step, "duration",
		call.Duration.Round(time.Microsecond), "err", call.Err)
	c.Recorder.Record(call)
}

// handler serves the metrics.
func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// computed notes what came out of a computation. Policies and types that are gone are forgotten.
func (m *metrics) computed(decision *policy.Decision, result *draslices.Result, problems map[string]int) {
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
