// Command netdra is a tool for policy and topology authors, and for node administrators. It shows network devices, runs
// NetworkTopologies without Kubernetes, and queries a node's driver for its devices, claims and problems.
//
// This package only contains flags and help texts; every command is a single call to an internal package. Package
// cnichain makes all changes to the machine and records them in a journal, so that another process can roll them back.
// Only the driver changes the driver's state, when netdra requests this through the driver's socket. No code here
// depends on a particular CNI plugin. netdra only reads from Kubernetes, and only with --cluster, --pod or
// --kubeconfig.
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
	code := run(ctx, osdeps.Linux(), printer.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		Name: displayName(os.Args[0])}, os.Args[1:]...)
	stop()
	os.Exit(code)
}

// notifyContext returns a context that is canceled by the first termination signal. Later signals are ignored, because
// the rollback has its own time limits, and killing the process would leave work for "netdra chain undo". SIGPIPE is
// also ignored; without a handler, Go terminates a process whose standard output is closed (package os/signal,
// "SIGPIPE"), possibly in the middle of a run.
func notifyContext() (context.Context, context.CancelFunc) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // SIGHUP is ignored under nohup
		signals = append(signals, syscall.SIGHUP)
	}
	return signal.NotifyContext(context.Background(), signals...)
}

// run runs a command line and returns the exit status. An error without a status can only occur before a command
// changes anything, so it maps to 2. Tests and the bundle command also call run, so it must not modify global state.
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
		Short: "Inspect and test the DRA network driver",
		Long: `netdra shows the devices that the DRA network driver discovers and would publish, and runs
NetworkTopologies as the driver does for pods, on any Linux machine and without Kubernetes. It uses the same code as
the driver for discovery, attaching and checks, and the same CNI plugins. On a node, as root, it queries the driver
for devices, claims and problems.

Install it as kubectl-netdra in your PATH to call it as "kubectl netdra". From a workstation, name the node with
--node, or name a pod or claim on it ("netdra help remote"). "netdra help exit-codes" explains the exit status. If the
kubelet's directory is not /var/lib/kubelet, set NETDRA_SOCKET to the path of the driver's netdra.sock.`,
		Example: `  netdra facts
  netdra slices -f policies.yaml -o text
  netdra explain eth0
  netdra simulate -f pod.yaml --cluster
  netdra import -f networks.yaml > new.yaml
  sudo netdra doctor
  sudo netdra devices
  sudo netdra claims
  sudo netdra release
  sudo netdra report --file report.html
  netdra doctor --all-nodes
  netdra trace pod/web -n apps
  netdra chain validate topology.yaml
  netdra chain plan topology.yaml --device uplink=eth1
  sudo netdra chain run topology.yaml --device uplink=eth1`,
		Version:       version.Get().Describe(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	addGroup(root, "Devices and policies:", factsCommand(streams), slicesCommand(deps, streams),
		explainCommand(deps, streams),
		policiesCommand(deps, streams), simulateCommand(deps, streams), importCommand(streams))
	addGroup(root, "Topologies:", chainCommand(deps, streams))
	addGroup(root, "This node and its driver:", doctorCommand(deps, streams), devicesCommand(deps, streams),
		claimsCommand(deps, streams),
		traceCommand(deps, streams),
		releaseCommand(streams), reportCommand(deps, streams), bundleCommand(deps, streams))
	root.AddCommand(versionCommand(streams), exitCodesHelp(), remoteTopic())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		if refused := (&exit.Error{}); errors.As(err, &refused) { // the error names the flag
			return refused
		}
		return err
	})
	root.SetHelpCommand(helpCommand(root))
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: streams.CalledAs()}
	return root
}

func addGroup(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, cmd := range commands {
		cmd.GroupID = title
	}
	root.AddCommand(commands...)
}
