package plugin

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/klog/v2"

	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/internal/telemetry"
	"github.com/dra-networking/dra-network-driver/policy"
)

// logDecision logs, for each device, why it is offered or hidden, if that has changed.
func (p *publisher) logDecision(ctx context.Context, decision *policy.Decision) {
	logger := klog.FromContext(ctx).V(telemetry.LevelDecisions)
	if !logger.Enabled() {
		return
	}
	logged := make(map[string]string, len(decision.Devices))
	for i := range decision.Devices {
		device := &decision.Devices[i]
		reasons := make([]string, len(device.Reasons))
		for j, reason := range device.Reasons {
			reasons[j] = reason.String()
		}
		name := claims.Identity(device.Device)
		logged[name] = fmt.Sprintf("%d %s", len(device.Personas), strings.Join(reasons, "; "))
		if p.logged[name] != logged[name] {
			logger.Info("Decided on a device", "device", name, "entries", len(device.Personas), "reasons", reasons)
		}
	}
	p.logged = logged
}
