package attach

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/dra-networking/dra-network-driver/plugin/internal/telemetry"
)

// Metrics measures the attempts to attach and detach.
type Metrics struct {
	attempts *prometheus.HistogramVec
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{attempts: telemetry.NewHistogram("attach_seconds",
		"Duration of one attempt to attach or detach all claims of a pod sandbox.", "operation", "result")}
	registry.MustRegister(m.attempts)
	return m
}
