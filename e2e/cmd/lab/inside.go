package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
)

func execCommand(w *where) *cobra.Command {
	var node string
	cmd := &cobra.Command{
		Use:   "exec -- COMMAND [ARGUMENT...]",
		Short: "Run a command on the node, inside the cluster's namespaces",
		Long: `exec runs a command with the node's mounts, processes, network and host name. Terminal and standard streams
are passed through, KUBECONFIG is set and the cluster's own programs come first in PATH. Of several nodes --node chooses
one; without it the command runs on the machine of the control plane.`,
		Example: `  lab exec -- ip -br address
  lab exec -- ctr -n k8s.io containers ls
  lab exec --node 2 -- bash`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return inside(w, node, args) },
	}
	nodeFlag(cmd, &node)
	return cmd
}

func kubectlCommand(w *where) *cobra.Command {
	return &cobra.Command{
		Use:   "kubectl [ARGUMENT...]",
		Short: "Run kubectl as the cluster's administrator",
		Long: `kubectl passes everything on to the kubectl of the cluster's version. Put --name before "kubectl" to choose
the cluster.`,
		Example: `  lab kubectl get nodes
  lab kubectl netdra devices --node node-1
  lab --name other kubectl apply -f pod.yaml`,
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			return inside(w, "", append([]string{"kubectl"}, args...))
		},
	}
}

// inside runs a command with this process's standard streams. An interrupt from the terminal reaches the command
// directly, so this process ignores it, but forwards termination signals. It does not use the cobra command's context,
// because an interrupt cancels that context, which would kill the child, whereas a shell inside should merely receive
// the signal.
func inside(w *where, node string, args []string) error {
	m, err := w.machine(node)
	if err != nil {
		return err
	}
	cmd := m.Command(context.Background(), args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if self, err := os.Executable(); err == nil {
		cmd.Env = besidePath(cmd.Env, filepath.Dir(self))
	}
	if cmd.Dir, err = os.Getwd(); err != nil {
		return err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if err := m.StartCommand(cmd); err != nil {
		return err
	}
	go func() {
		for s := range signals {
			if s == syscall.SIGTERM {
				_ = cmd.Process.Signal(s) // the process may already have exited
			}
		}
	}()
	return cmd.Wait()
}

// besidePath adds the lab command's directory to the PATH in an environment. "make build" puts netdra and
// kubectl-netdra there, so "lab kubectl netdra claims" finds the plugin from the same build.
func besidePath(env []string, dir string) []string {
	for i := len(env) - 1; i >= 0; i-- { // the last entry is effective
		if strings.HasPrefix(env[i], "PATH=") {
			return append(env, env[i]+":"+dir)
		}
	}
	return append(env, "PATH="+dir)
}

func restartCommand(w *where) *cobra.Command {
	var name string
	cmd := componentCommand(w, "restart", "Stop a component and start it again; pods stay", "restarted",
		func(ctx context.Context, m *lab.Machine, comp lab.Component) error {
			sig, err := parseSignal(name)
			if err != nil {
				return err
			}
			return m.Restart(ctx, comp, sig)
		})
	cmd.Example = "  lab restart kubelet\n  lab restart containerd --signal TERM"
	addSignal(cmd, &name)
	return cmd
}

func stopCommand(w *where) *cobra.Command {
	var name string
	cmd := componentCommand(w, "stop", "Stop a component", "stopped",
		func(ctx context.Context, m *lab.Machine, comp lab.Component) error {
			sig, err := parseSignal(name)
			if err != nil {
				return err
			}
			return m.Stop(ctx, comp, sig)
		})
	addSignal(cmd, &name)
	return cmd
}

func addSignal(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "signal", "KILL", "signal to stop it with; after TERM the API server may take a "+
		"minute to end")
}

func startCommand(w *where) *cobra.Command {
	return componentCommand(w, "start", "Start a stopped component again", "started",
		func(ctx context.Context, m *lab.Machine, comp lab.Component) error { return m.Start(ctx, comp) })
}

// componentCommand returns a command that acts on one component and reports how long this took. It has the same
// two-minute time limit that process 1 applies to stopping a component.
func componentCommand(
	w *where, verb, short, done string, do func(context.Context, *lab.Machine, lab.Component) error,
) *cobra.Command {
	var node string
	cmd := &cobra.Command{
		Use:       verb + " COMPONENT",
		Short:     short,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: componentNames(),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := w.machine(node)
			if err != nil {
				return err
			}
			start := time.Now()
			ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Minute)
			defer cancel()
			if err := do(ctx, m, lab.Component(args[0])); err != nil {
				return err
			}
			return printf(cmd, "%s %s in %s.", args[0], done, since(start))
		},
	}
	nodeFlag(cmd, &node)
	return cmd
}

func logsCommand(w *where) *cobra.Command {
	var node string
	cmd := &cobra.Command{
		Use:       "logs COMPONENT",
		Short:     "Print what a component has logged",
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: append(componentNames(), "node"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := w.machine(node)
			if err != nil {
				return err
			}
			f, err := os.Open(m.Logs(lab.Component(args[0])))
			if err != nil {
				return err
			}
			defer func() { _ = f.Close() }() // opened only for reading
			_, err = io.Copy(cmd.OutOrStdout(), f)
			return err
		},
	}
	nodeFlag(cmd, &node)
	return cmd
}

func imageCommand(w *where) *cobra.Command {
	parent := &cobra.Command{Use: "image", Short: "Give images to the node"}
	parent.AddCommand(&cobra.Command{
		Use:   "import ARCHIVE...",
		Short: "Import image archives, so that pods can use them with imagePullPolicy Never",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := w.open()
			if err != nil {
				return err
			}
			start := time.Now()
			if err := c.ImportImages(cmd.Context(), args...); err != nil {
				return err
			}
			return printf(cmd, "%d imported in %s.", len(args), since(start))
		},
	})
	return parent
}
