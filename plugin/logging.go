package plugin

import (
	"context"
	"fmt"

	nrilog "github.com/containerd/nri/pkg/log"
	"k8s.io/klog/v2"

	"github.com/dra-networking/dra-network-driver/plugin/internal/telemetry"
)

type nriLogger struct{ logger klog.Logger }

var _ nrilog.Logger = nriLogger{}

func (n nriLogger) log(level int, format string, args []any) {
	n.logger.V(level).Info("NRI library reports", "message", fmt.Sprintf(format, args...))
}

// Debugf implements log.Logger.
func (n nriLogger) Debugf(_ context.Context, format string, args ...any) {
	n.log(telemetry.LevelCalls, format, args)
}

// Infof implements log.Logger.
func (n nriLogger) Infof(_ context.Context, format string, args ...any) {
	n.log(telemetry.LevelDecisions, format, args)
}

// Warnf implements log.Logger.
func (n nriLogger) Warnf(_ context.Context, format string, args ...any) { n.log(2, format, args) }

// Errorf implements log.Logger. It does not log at error level, since the driver itself decides whether an
// administrator must act: it notices when a connection ends and reconnects.
func (n nriLogger) Errorf(_ context.Context, format string, args ...any) { n.log(2, format, args) }
