package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const metricsNamespace = "dra_network"

// NewGauge creates a gauge in the driver's metrics namespace.
func NewGauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: metricsNamespace, Name: name, Help: help}, labels)
}

// NewHistogram creates a histogram in the driver's metrics namespace, for durations from 1 ms to 1 min.
func NewHistogram(name, help string, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: metricsNamespace, Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 13),
	}, labels)
}

// NewCounter creates a counter in the driver's metrics namespace.
func NewCounter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Namespace: metricsNamespace, Name: name, Help: help})
}

// Observe records the duration and the result of an operation.
func Observe(histogram *prometheus.HistogramVec, took time.Duration, err error, labels ...string) {
	result := "success"
	if err != nil {
		result = "failure"
	}
	histogram.WithLabelValues(append(labels, result)...).Observe(took.Seconds())
}
