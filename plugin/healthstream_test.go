package plugin

import (
	"context"
	"strings"
	"testing"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/internal/status"
)

// watchHealth subscribes to the health stream in the same way as the kubelet.
func (f *fixture) watchHealth() <-chan kubeletplugin.DeviceHealthReport {
	ctx, cancel := context.WithCancel(context.Background())
	reports := make(chan kubeletplugin.DeviceHealthReport)
	ended := make(chan error, 1)
	go func() { ended <- f.dra.WatchHealthStatus(ctx, reports) }()
	f.Cleanup(func() {
		cancel()
		f.must(<-ended)
	})
	return reports
}

// report returns the first report that a newly subscribed kubelet receives.
func (f *fixture) report() kubeletplugin.DeviceHealthReport {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	reports := make(chan kubeletplugin.DeviceHealthReport)
	go func() { _ = f.dra.WatchHealthStatus(ctx, reports) }()
	return <-reports
}

// If a pod's chain completes late, the driver sends a report that differs from the previous one, which makes the
// kubelet sync the pod. A chain that completes in time triggers no report.
func TestLateAttachWakesKubelet(t *testing.T) {
	f := newFixture(t)
	release := f.slow(f.prepared("claim-a", "a", "up0"))
	reports := f.watchHealth()
	first := <-reports
	if len(first.Devices) != 1 || first.Devices[0].PoolName != "n/up0" || first.Devices[0].DeviceName != "up0" ||
		first.Devices[0].Health != kubeletplugin.HealthStatusHealthy || first.Devices[0].Message != "" {
		t.Errorf("first report = %+v", first)
	}
	release()
	second := <-reports // arrives without advancing the clock
	if len(second.Devices) != 1 || !strings.Contains(second.Devices[0].Message, "attached at 00:16:40.300") {
		t.Errorf("second report = %+v", second)
	}
	f.must(f.attach("b-0", f.prepared("claim-b", "b", "up1")))
	f.step(status.HealthPeriod)
	third := <-reports
	if len(third.Devices) != 2 || third.Devices[0].Message != second.Devices[0].Message ||
		third.Devices[1].Message != "" {
		t.Errorf("third report = %+v", third)
	}
}

// News about a device is not reported for the next claim that holds the device.
func TestNewsOfReleasedDevicesAreForgotten(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	f.dra.Health.Attached([]claims.Record{record})
	if report := f.report(); len(report.Devices) != 1 || report.Devices[0].Message == "" {
		t.Errorf("report = %+v, want one device with a message", report)
	}
	f.must(f.dra.unprepare(context.Background(), "claim-a"))
	if report := f.report(); len(report.Devices) != 0 {
		t.Errorf("report = %+v, want no devices", report)
	}
	f.prepared("claim-b", "b", "up0")
	if report := f.report(); len(report.Devices) != 1 || report.Devices[0].Message != "" {
		t.Errorf("report = %+v, want one device without a message", report)
	}
}

// A problem with a device is reported immediately and takes precedence over news.
func TestUnhealthyDevices(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	f.dra.Health.Attached([]claims.Record{record})
	reports := f.watchHealth()
	<-reports
	f.unhealthy["up0"] = "the link has lost its carrier"
	f.dra.Health.Changed()
	report := <-reports
	if device := report.Devices[0]; device.Health != kubeletplugin.HealthStatusUnhealthy ||
		device.Message != "the link has lost its carrier" {
		t.Errorf("report = %+v, want an unhealthy device with a lost carrier", report)
	}
}
