package plugin

import (
	"context"
	"fmt"
	"strings"

	nrilog "github.com/containerd/nri/pkg/log"
	"k8s.io/klog/v2"

	"github.com/dra-networking/dra-network-driver/policy"
)

// Levels of log messages. docs/dev/logging.md has the rules, and 0 and 2 in words.
const (
	logDecisions = 4
	logCalls     = 6
)

// nriLogger writes what NRI's library logs as messages of the driver, which has one format.
type nriLogger struct{ logger klog.Logger }

var _ nrilog.Logger = nriLogger{}

func (n nriLogger) log(level int, format string, args []any) {
	n.logger.V(level).Info("NRI library reports", "message", fmt.Sprintf(format, args...))
}

// Debugf implements log.Logger.
func (n nriLogger) Debugf(_ context.Context, format string, args ...any) {
	n.log(logCalls, format, args)
}

// Infof implements log.Logger.
func (n nriLogger) Infof(_ context.Context, format string, args ...any) {
	n.log(logDecisions, format, args)
}

// Warnf implements log.Logger.
func (n nriLogger) Warnf(_ context.Context, format string, args ...any) { n.log(2, format, args) }

// Errorf implements log.Logger. The driver itself decides whether it is an error for an administrator: it sees that the
// connection has ended, and connects again.
func (n nriLogger) Errorf(_ context.Context, format string, args ...any) { n.log(2, format, args) }

// logDecision logs, for each device, why it is offered or hidden, if that has changed.
func (p *publisher) logDecision(ctx context.Context, decision *policy.Decision) {
	logger := klog.FromContext(ctx).V(logDecisions)
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
		name := identity(device.Device)
		logged[name] = fmt.Sprintf("%d %s", len(device.Personas), strings.Join(reasons, "; "))
		if p.logged[name] != logged[name] {
			logger.Info("Decided on a device", "device", name, "entries", len(device.Personas), "reasons", reasons)
		}
	}
	p.logged = logged
}
