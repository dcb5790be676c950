package main

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
)

// printf prints a line of a command's result.
func printf(cmd *cobra.Command, format string, args ...any) error {
	_, err := fmt.Fprintf(cmd.OutOrStdout(), format+"\n", args...)
	return err
}

func since(start time.Time) string {
	return fmt.Sprintf("%.1f s", time.Since(start).Seconds())
}

// nameFlag returns the --name flag for use in a hint, or "" for the default cluster.
func nameFlag(w *where) string {
	if w.name == lab.DefaultName {
		return ""
	}
	return " --name " + w.name
}

func componentNames() []string {
	var out []string
	for _, c := range lab.Components() {
		out = append(out, string(c))
	}
	return out
}

// parseSignal parses a signal name, such as TERM or SIGTERM, or number, such as 15.
func parseSignal(s string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(s); err == nil && n > 0 && n < 65 {
		return syscall.Signal(n), nil
	}
	name := strings.ToUpper(s)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if sig := unix.SignalNum(name); sig != 0 {
		return sig, nil
	}
	return 0, fmt.Errorf("%q is not a signal: use a name such as TERM or KILL, or a number", s)
}

// parseGates parses the values of feature gates. Its errors contain the name of the gate. Kubernetes would report an
// invalid value only in the components' logs, a minute after the start.
func parseGates(gates map[string]string) (map[string]bool, error) {
	out := make(map[string]bool, len(gates))
	for name, text := range gates {
		enabled, err := strconv.ParseBool(text)
		if err != nil {
			return nil, fmt.Errorf("feature gate %s must be true or false, not %q", name, text)
		}
		out[name] = enabled
	}
	return out, nil
}
