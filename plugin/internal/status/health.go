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

// HealthPeriod is the interval at which unchanged reports are repeated. Without a report for 30 s, the kubelet treats
// device health as unknown.
const HealthPeriod = 10 * time.Second

// Health reports the health of prepared claims' devices to the kubelet. It also wakes the kubelet: if the report for a
// device changes, the kubelet immediately processes the pods that use the device. Without this, containers that are
// waiting for a slow chain would not be created until the kubelet's next retry, 10 to 15 s later.
type Health struct {
	claims *claims.Store
	// unhealthy returns the health problem of a device held by a claim, or "" if there is none.
	unhealthy func(claimUID string, held *claims.HeldDevice) string
	clock     clock.WithTicker

	mu sync.Mutex
	// news contains the last reported message for each device.
	news map[draslices.EntryID]string
	// told is closed and replaced when there is a change to report.
	told chan struct{}
}

// NewHealth returns the component for reporting the health of prepared claims' devices. unhealthy returns the health
// problem of a device, or "" if there is none.
func NewHealth(
	claims *claims.Store, unhealthy func(string, *claims.HeldDevice) string, clock clock.WithTicker,
) *Health {
	return &Health{claims: claims, unhealthy: unhealthy, clock: clock, news: map[draslices.EntryID]string{},
		told: make(chan struct{})}
}

// Attached wakes the kubelet for the pods that use the claims, because their containers no longer need to wait. Because
// the message is also visible to other pods that share a device, it contains no names.
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

// Changed requests a new report to the kubelet.
func (h *Health) Changed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tellLocked()
}

func (h *Health) tellLocked() {
	close(h.told)
	h.told = make(chan struct{})
}

// Released deletes the messages for devices, since they do not apply to the next claim that holds the devices.
func (h *Health) Released(devices []claims.HeldDevice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, device := range devices {
		delete(h.news, draslices.EntryID{Pool: device.Pool, Name: device.Name})
	}
}

// Watch sends reports until ctx is done: immediately, after every change, and every HealthPeriod.
func (h *Health) Watch(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	ticker := h.clock.NewTicker(HealthPeriod)
	defer ticker.Stop()
	for {
		// The channel belongs to this report: if something changes while it is being sent, the channel is closed, and
		// the next report follows immediately.
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

// report returns the health of all devices of all claims, and a channel that is closed when the health of any of them
// may have changed.
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
