// Command netdra shows network devices and tries NetworkTopologies out on a Linux machine, without Kubernetes, and asks the
// driver of a node who has what and what is wrong: for people who write policies and topologies, and who run nodes.
//
// The rule of this command: package cnichain does everything that changes the machine, and its journal is written before
// that, so that whatever was begun can be undone by another process. What the driver owns is changed by the driver, when it is
// asked on its socket. Nothing here knows a CNI plugin by name, and nothing is asked of Kubernetes, but by "simulate --cluster"
// and "doctor --kubeconfig", which only read.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/internal/version"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

func main() {
	ctx, stop := notifyContext()
	code := run(ctx, osdeps.Linux(), printer.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Name: displayName(os.Args[0])}, os.Args[1:]...)
	stop()
	os.Exit(code)
}

// notifyContext ends with the first signal that asks the process to end. Further ones are swallowed: undoing takes no
// longer than its time limits, and a process that is killed in the middle leaves work to "netdra chain undo". A reader of
// the output that goes away (SIGPIPE) ends nothing.
func notifyContext() (context.Context, context.CancelFunc) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		signals = append(signals, syscall.SIGHUP)
	}
	return signal.NotifyContext(context.Background(), signals...)
}

// run runs a command line and returns the exit status. An error without one of its own was found before anything was run.
func run(ctx context.Context, deps osdeps.Deps, streams printer.Streams, arguments ...string) int {
	root := rootCommand(deps, streams)
	root.SetArgs(arguments)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exit.OK
	}
	if !errors.Is(err, exit.ErrPrinted) {
		printer.New(streams.Err).Printf("%s: %v", streams.CalledAs(), err)
	}
	if failure := (&exit.Error{}); errors.As(err, &failure) {
		return failure.Code
	}
	return exit.Refused
}

func rootCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "netdra",
		Short: "See what the DRA network driver sees on this machine, and try NetworkTopologies out, without Kubernetes",
		Long: `netdra shows what the DRA network driver discovers and would publish, and runs what it runs for pods, on any Linux machine
and without Kubernetes: the same discovery, the same engine, the same CNI plugins, the same checks. On a node it asks the driver, as
root, who has what, and says what is wrong.

Put or link it as kubectl-netdra into your PATH, and it is "kubectl netdra". What its exit status says: "netdra help exit-codes".
Where kubelet has another folder than /var/lib/kubelet, set NETDRA_SOCKET to the path of the driver's netdra.sock.`,
		Example: `  netdra facts
  netdra slices -f policies.yaml -o text
  netdra explain eth0
  netdra simulate -f pod.yaml --cluster
  sudo netdra doctor
  sudo netdra devices
  sudo netdra claims
  sudo netdra release
  sudo netdra report -o report.html
  netdra chain validate topology.yaml
  netdra chain plan topology.yaml --device uplink=eth1
  sudo netdra chain run topology.yaml --device uplink=eth1`,
		Version:       version.Get().String(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	root.AddCommand(chainCommand(deps, streams), factsCommand(streams), slicesCommand(deps, streams), explainCommand(deps, streams), simulateCommand(deps, streams), traceCommand(streams), releaseCommand(streams), doctorCommand(streams),
		devicesCommand(streams), claimsCommand(streams), logsCommand(streams), policiesCommand(deps, streams), gcCommand(streams), reportCommand(deps, streams), versionCommand(streams), exitCodesHelp())
	callAs(root, streams.CalledAs())
	return root
}
