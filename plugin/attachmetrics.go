package plugin

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/dra-networking/dra-network-driver/plugin/internal/telemetry"
)

// attachMetrics measure attempts to attach and detach.
type attachMetrics struct {
	attempts *prometheus.HistogramVec
}

// newAttachMetrics registers the metrics.
func newAttachMetrics(registry prometheus.Registerer) *attachMetrics {
	m := &attachMetrics{attempts: telemetry.NewHistogram("attach_seconds",
		"How long it took to attach or detach all claims of a pod sandbox, one attempt.", "operation", "result")}
	registry.MustRegister(m.attempts)
	return m
}
