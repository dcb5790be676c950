// Command lab runs a real Kubernetes cluster with one or more nodes on this machine, for trying out the driver and for
// its tests.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Stderr)
	stop()
	os.Exit(code)
}

// run runs the command and returns the exit status. If a command inside the cluster failed, it has already printed its
// error, so run only returns its status: for "lab exec", the error is the command's own, and for "lab vm", it is an
// exitError. Any other error, including a wrapped one, is lab's own: run prints it and returns status 1.
func run(ctx context.Context, stderr io.Writer) int {
	err := rootCommand().ExecuteContext(ctx)
	exit, direct := err.(*exec.ExitError) //nolint:errorlint // a wrapped one is from a program of ours, with a message
	var inside exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &inside):
		return int(inside)
	case direct && exit.ExitCode() > 0:
		return exit.ExitCode()
	default:
		_, _ = fmt.Fprintln(stderr, "lab:", err) // an error while printing cannot be reported
		return 1
	}
}

// where identifies a cluster. It is shared by all commands.
type where struct {
	name, cache string
}

func (w *where) options() lab.Options {
	return lab.Options{Name: w.name, CacheDir: w.cache}
}

func (w *where) open() (*lab.Cluster, error) {
	return lab.Open(w.options())
}

func rootCommand() *cobra.Command {
	w := &where{}
	root := &cobra.Command{
		Use:   "lab",
		Short: "A real Kubernetes cluster on this machine, in seconds",
		Long: `lab runs a node of real Kubernetes (API server, etcd, containerd, kubelet and the rest), or several, without Docker
and without a registry. Everything is inside private namespaces: the host sees no mount, no interface and
no file of it, and "lab down" ends all of it at once. It needs root.

The programs are built from source on first use, which takes 5 to 15 minutes, and are kept in a cache
($DRA_NETWORK_CACHE, or dra-network-driver in the user's cache folder).`,
		Example: `  lab up                      start the cluster "default"
  lab deploy                  put the driver into it
  lab kubectl get pods -A     look at it
  lab exec -- ip link         run any command on the node
  lab up --nodes 3            have nodes that can be switched off one by one: see "lab node"
  lab down                    remove it without a trace`,
		SilenceErrors: true,
		// Accept --name before "kubectl", since all arguments after it are passed to kubectl.
		TraverseChildren: true,
		SilenceUsage:     true,
	}
	root.PersistentFlags().StringVar(&w.name, "name", lab.DefaultName,
		"name of the cluster; several can run side by side")
	root.PersistentFlags().StringVar(&w.cache, "cache-dir", "",
		"folder for binaries and state (default $DRA_NETWORK_CACHE or the user's cache)")
	root.AddCommand(buildCommand(w), upCommand(w), downCommand(w), statusCommand(w),
		execCommand(w), kubectlCommand(w), restartCommand(w), stopCommand(w), startCommand(w), logsCommand(w),
		imageCommand(w),
		nodeCommand(w), deployCommand(w), packCommand(), vmCommand(w))
	return root
}
