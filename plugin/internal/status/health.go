package status

import (
	"context"
	"sync"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/utils/clock"

	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// HealthPeriod is the interval of unchanged reports to the kubelet. Without a report for 30 s, the kubelet treats the
// health of devices as unknown.
const HealthPeriod = 10 * time.Second

// Health reports the health of prepared claims' devices to the kubelet. It also wakes the kubelet: when the report of a
// device changes, the kubelet immediately processes the pods that have it. Otherwise containers that wait for a slow
// chain would only be created at the kubelet's next retry, 10 to 15 s later.
type Health struct {
	claims *claims.Store
	// unhealthy returns the problem of a device that a claim holds; empty if there is none.
	unhealthy func(claimUID string, held *claims.HeldDevice) string
	clock     clock.WithTicker

	mu sync.Mutex
	// news maps devices to the last reported text.
	news map[draslices.EntryID]string
	// told is closed, and replaced, when there is a change to report.
	told chan struct{}
}

// NewHealth returns the health of the devices of claims. unhealthy returns the problem of a device; empty if there is
// none.
func NewHealth(
	claims *claims.Store, unhealthy func(string, *claims.HeldDevice) string, clock clock.WithTicker,
) *Health {
	return &Health{claims: claims, unhealthy: unhealthy, clock: clock, news: map[draslices.EntryID]string{},
		told: make(chan struct{})}
}

// Attached wakes the kubelet for the pods of claims, whose containers no longer need to wait. Other pods that share a
// device see the message, too, so it contains no names.
func (h *Health) Attached(records []claims.Record) {
	message := "attached at " + h.clock.Now().UTC().Format("15:04:05.000")
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, record := range records {
		for _, device := range record.Devices {
			h.news[draslices.EntryID{Pool: device.Pool, Name: device.Name}] = message
		}
	}
	h.tellLocked()
}

// Changed sends a new report to the kubelet.
func (h *Health) Changed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tellLocked()
}

func (h *Health) tellLocked() {
	close(h.told)
	h.told = make(chan struct{})
}

// Released deletes the texts of devices, which do not apply to their next owner.
func (h *Health) Released(devices []claims.HeldDevice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, device := range devices {
		delete(h.news, draslices.EntryID{Pool: device.Pool, Name: device.Name})
	}
}

// Watch sends reports until ctx ends: immediately, after every change, and periodically.
func (h *Health) Watch(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	ticker := h.clock.NewTicker(HealthPeriod)
	defer ticker.Stop()
	for {
		// The channel belongs to the report: changes that occur while it is being sent close the channel, and the next
		// report follows immediately.
		report, told := h.report()
		select {
		case <-ctx.Done():
			return nil
		case reports <- report:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-told:
		case <-ticker.C():
		}
	}
}

// report returns the health of every device of every claim, and a channel that is closed when it may have changed.
func (h *Health) report() (kubeletplugin.DeviceHealthReport, <-chan struct{}) {
	devices := h.claims.Devices()
	h.mu.Lock()
	defer h.mu.Unlock()
	var report kubeletplugin.DeviceHealthReport
	now := h.clock.Now()
	for _, held := range devices {
		health := kubeletplugin.DeviceHealth{
			PoolName: held.Pool, DeviceName: held.Name, Health: kubeletplugin.HealthStatusHealthy, LastUpdated: now,
			Message: h.news[draslices.EntryID{Pool: held.Pool, Name: held.Name}],
		}
		if reason := h.unhealthy(held.ClaimUID, &held.HeldDevice); reason != "" {
			health.Health, health.Message = kubeletplugin.HealthStatusUnhealthy, reason
		}
		report.Devices = append(report.Devices, health)
	}
	return report, h.told
}
