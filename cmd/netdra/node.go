package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/bundle"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/clusterwide"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/doctor"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/remote"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/report"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
)

func doctorCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	flags := &doctor.Options{}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this node and suggest fixes",
		Long: `Use doctor first when pods with claims do not start on a node. Run it as root on the node, or in a pod
that mounts the node's file system, with --root. It is read-only.

It checks whether the container runtime calls the driver and reads its CDI specs; component versions with known bugs;
paths that differ between the driver, the kubelet and the container runtime; the CNI plugins that topologies use;
other programs that manage the same devices; disks; rejected policies and topologies; and leftovers of pods. For each
problem it prints the location, the impact and the fix.

Exit status: 0 no faults, 1 a fault was found (✗; risks, !, do not count), 2 nothing could be checked.`,
		Example: `  sudo netdra doctor
  sudo netdra doctor --all                                      # also print passed checks
  sudo netdra doctor -o json | jq '.[] | select(.level == "fail")'`,
		Args: noArguments(""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			input, err := flags.Gather(cmd.Context())
			if err != nil {
				return err
			}
			findings := doctor.Examine(input)
			err = printer.Show(streams.Out, flags.Form, findings, func(out *printer.Printer) {
				doctor.PrintFindings(out, findings, flags.All)
				out.Printf("%s", out.Colour(printer.Dim, nodeclient.VersionsOf(input.Driver).String()))
			})
			return exit.Check(err, doctor.Count(findings, doctor.Fail) > 0)
		},
	}
	set := cmd.Flags()
	rootFlag(cmd, &flags.Root)
	set.StringVar(&flags.Socket, "socket", os.Getenv(nodeclient.SocketVariable),
		"socket of the driver (default: "+nodeclient.ShippedSocket()+" below --root)")
	set.StringVar(&flags.Readyz, "readyz", "http://127.0.0.1:9680/readyz",
		"URL of the driver's readiness probe, used if its socket does not answer; empty: not used")
	set.BoolVar(&flags.All, "all", false, "also print passed and skipped checks")
	formFlag(cmd, &flags.Form)
	addRemote(cmd, deps, streams, &remoteCommand{forward: []string{"output", "all"},
		single: func(ctx context.Context, cluster *remote.Cluster, node string) error {
			return clusterwide.Doctor(ctx, cluster, streams, node, flags)
		},
		all: func(ctx context.Context, cluster *remote.Cluster, _ []string) error {
			return clusterwide.DoctorAll(ctx, cluster, streams, flags)
		}})
	return cmd
}

func devicesCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	var socket, form string
	cmd := &cobra.Command{
		Use:   "devices [DEVICE]...",
		Short: "List published devices and their holders",
		Long: `Use devices to see which devices of this node are free, and which claims and pods hold the others.

It lists the devices that the driver publishes. DEVICE is a published name, an interface name, or a PCI address.

STATE is one of
  free         no claim holds the device
  in use       a claim holds the device
  lost         a claim holds the device, but its interface is no longer in the pod
  blocked      free, but a device that excludes it is in use
  unusable     none of the CNI plugins of its policy works on the node, so no DeviceClass selects it
  quarantined, gone, withdrawn, no-carrier
               the value of the device's taint: no claim should get the device
USED is how much of each counter of a shared device is in use, out of its total. HELD BY names the first claim and pod
and counts the others; -o wide lists all of them. Times are in UTC.

Exit status: 0 the devices are listed, 2 the driver does not answer, or there is no such device.`,
		Example: `  sudo netdra devices
  sudo netdra devices -o wide
  sudo netdra devices eth1 -o json | jq '.[].holders'`,
		RunE: func(cmd *cobra.Command, names []string) error {
			return nodeclient.ListDevices(cmd.Context(), streams, socket, form, names)
		},
	}
	socketFlag(cmd, &socket)
	listFlag(cmd, &form)
	addRemote(cmd, deps, streams, &remoteCommand{forward: []string{"output"},
		object: func(place *remote.Place) []string { return place.Devices },
		all: func(ctx context.Context, cluster *remote.Cluster, _ []string) error {
			return clusterwide.ListDevices(ctx, cluster, streams, form)
		}})
	return cmd
}

func claimsCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	var socket, form string
	cmd := &cobra.Command{
		Use:   "claims [[NAMESPACE/]CLAIM]...",
		Short: "List prepared claims and their interfaces",
		Long: `Use claims to check whether the pods of this node have their interfaces, and with which addresses.

It lists the claims that the driver has prepared, one line per pod that uses the claim. A claim without a namespace is
looked up in "default".

STATE is one of
  prepared   the sandbox of the pod does not exist yet
  attaching  plugins are running
  attached   the pod has its interfaces
  lost       the claim was attached, but an interface is no longer in the pod
  failed     attaching failed and is retried
  detaching  plugins are running, or failed steps are retried
  reserved   the devices are reserved; the pod's own network attaches them (attachment: External)
  unused     no pod of this node uses the claim, and the kubelet has not released it yet
Errors are below the table. SINCE is the time when attaching or detaching began. Times are in UTC.

Exit status: 0 the claims are listed, 1 a claim has failed or is lost, 2 the driver does not answer, or has no such
claim.`,
		Example: `  sudo netdra claims
  sudo netdra claims default/my-pod-net-8x2kq -o wide
  sudo netdra claims -o json | jq '.[].pods[]?.interfaces'`,
		RunE: func(cmd *cobra.Command, names []string) error {
			return nodeclient.ListClaims(cmd.Context(), streams, socket, form, names)
		},
	}
	socketFlag(cmd, &socket)
	listFlag(cmd, &form)
	addRemote(cmd, deps, streams, &remoteCommand{forward: []string{"output"}, claims: true,
		object: func(place *remote.Place) []string { return place.Claims }})
	return cmd
}

func traceCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	flags := &nodeclient.TraceOptions{}
	cmd := &cobra.Command{
		Use:   "trace [[NAMESPACE/]CLAIM]",
		Short: "Show the CNI calls for a claim",
		Long: `Use trace on the pod's node when a pod waits for its interfaces or has wrong ones. It reads the
driver's log of CNI calls.

For each sandbox it prints a timeline: the step and plugin of each call, its start, duration and result. --calls adds
the environment, input, output and error of each plugin. Without a claim it lists the claims in the log in the form that
the command accepts, with their pods, the number of calls and failures, and the time and result of the last call; with
--failed it lists only claims with a failed call. A claim without a namespace is looked up in "default".

Values of keys that look like secrets were removed, and long streams truncated, when the log was written. Times are in
UTC. A log is kept for an hour after the release of its claim.

Exit status: 0 every call succeeded, 1 a call failed, 2 the log has no calls of the claim.`,
		Example: `  # list the claims in the log
  sudo netdra trace

  # show the calls for a claim
  sudo netdra trace default/my-pod-net-8x2kq

  # show why a plugin failed
  sudo netdra trace my-pod-net-8x2kq --calls --failed`,
		Args: countArguments(0, 1, "CLAIM", "default/my-pod-net-8x2kq"),
		RunE: func(cmd *cobra.Command, claims []string) error {
			return flags.Run(cmd.Context(), streams, claims)
		},
	}
	set := cmd.Flags()
	logDirFlag(cmd, &flags.Dir)
	socketFlag(cmd, &flags.Socket)
	set.BoolVar(&flags.Calls, "calls", false, "add the environment, input and output of each plugin")
	set.BoolVar(&flags.Failed, "failed", false, "only show failed calls, and claims with one")
	formFlag(cmd, &flags.Form)
	addRemote(cmd, deps, streams, &remoteCommand{forward: []string{"output", "calls", "failed"}, claims: true,
		each: true, object: func(place *remote.Place) []string { return place.Claims }})
	return cmd
}

func releaseCommand(streams printer.Streams) *cobra.Command {
	flags := &nodeclient.ReleaseOptions{}
	cmd := &cobra.Command{
		Use:   "release [KEY]...",
		Short: "List and retry failed cleanups",
		Long: `Use release when a device is quarantined, or when doctor reports leftovers.

It lists the steps that the driver could not undo when a pod ended. After many attempts the driver stops, so that the
pod can terminate. The devices of these steps are quarantined: they cannot be allocated until they are clean and back
on the host. The driver retries every five minutes. With a KEY, or --all, it retries immediately: fix the reported
cause first.

Some cleanups can never succeed, for example if a plugin rejects the configuration that it was attached with. With a
KEY and --forget the driver retries and, if that fails, abandons the cleanup, provided that the exclusive device is on
the host. The device is offered again. Other leftovers of the plugin, such as addresses and rules, stay on the node.

With --orphans it lists files on the node without an owner: CDI specs of claims that are not prepared, pinned network
namespaces of sandboxes that no longer exist, and expired CNI logs. They are left only after a crash or after files
were restored. With --all the driver removes them. It checks each file again under its owner's lock, so that claims
and pods that are just starting are not affected. It does not call the CNI verb GC: after the loss of a journal,
plugins would free the addresses of running pods.

Exit status: 0 the cleanups are done or abandoned, 1 something could not be undone or removed, 2 the driver does not
answer.`,
		Example: `  # list failed cleanups of this node with their reasons
  sudo netdra release

  # retry one cleanup, or all of them
  sudo netdra release SANDBOX/CLAIM-UID/uplink/0
  sudo netdra release --all

  # abandon a cleanup that can never succeed
  sudo netdra release SANDBOX/CLAIM-UID/uplink/0 --forget

  # list orphaned files, then remove them
  sudo netdra release --orphans
  sudo netdra release --orphans --all`,
		RunE: func(cmd *cobra.Command, keys []string) error { return flags.Run(cmd.Context(), streams, keys) },
	}
	socketFlag(cmd, &flags.Socket)
	cmd.Flags().BoolVar(&flags.All, "all", false, "retry every cleanup; with --orphans, remove every file")
	cmd.Flags().BoolVar(&flags.Orphans, "orphans", false, "list orphaned files instead of failed cleanups")
	cmd.Flags().BoolVar(&flags.Forget, "forget", false, "abandon each KEY whose cleanup fails again")
	cmd.MarkFlagsMutuallyExclusive("forget", "all")
	cmd.MarkFlagsMutuallyExclusive("forget", "orphans")
	listFlag(cmd, &flags.Form)
	return cmd
}

func reportCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	flags := &report.Options{}
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Write an HTML report of the node",
		Long: `Use report to get an overview of a whole node, or to share its state.

It writes a single, self-contained HTML file: the problems that "netdra doctor" finds; the devices by NUMA node and
PCIe root, each with how it is offered, which claims hold it, how much is used, and why it is hidden; and for each
claim its chain with the times, results and errors of its steps.

Without -f it uses the data of this node's driver, its log of CNI calls, and the checks of doctor. With -f it uses the
policies in files, for this machine or a recorded one, and does not show which claims hold a device.

Exit status: 0 the page was written, 2 the driver does not answer, or a file cannot be read or written.`,
		Example: `  # on a node, as root
  sudo netdra report --file report.html

  # from a workstation, of one node or of the whole cluster
  kubectl netdra report --node worker-1 --file worker-1.html
  kubectl netdra report --all-nodes --file cluster.html

  # before policies are applied, for a recorded machine
  netdra report -f policies.yaml --from worker-1 --file report.html`,
		Args: noArguments(""),
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.Run(cmd.Context(), deps, streams) },
	}
	addInputFlags(cmd, &flags.Inputs)
	logDirFlag(cmd, &flags.LogDir)
	rootFlag(cmd, &flags.Root)
	fileFlag(cmd, &flags.Output, "HTML page", "html")
	addRemote(cmd, deps, streams, &remoteCommand{forward: []string{"file"}, local: []string{"filename", "from"},
		single: saveFrom(streams, &flags.Output, "report"),
		all: func(ctx context.Context, cluster *remote.Cluster, _ []string) error {
			page, err := report.Cluster(ctx, cluster, deps.Clock.Now())
			if err != nil {
				return err
			}
			return printer.Save(streams, flags.Output, page)
		}})
	return cmd
}

// bundleCommand returns the bundle command. It runs the other commands in this process with the same dependencies, so
// that the archive contains the output that a user would see.
func bundleCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Collect diagnostics for a bug report",
		Long: `Use bundle to collect diagnostics for a bug report, and attach the archive to the report.

The archive contains the output of other commands for the node: versions, doctor, devices, claims, failed cleanups,
facts, the HTML report, and the log of CNI calls. "commands.txt" lists the commands with their exit status and errors.

Values of keys that look like secrets (password, secret, token, credential, private, api-key, psk) are removed from
the log. Names of pods and nodes, addresses and devices are included. Review the archive before you publish
it.

Exit status: 0 the archive was written, 2 nothing could be collected.`,
		Example: `  sudo netdra bundle --file bundle.tar.gz
  netdra bundle --node worker-1 --file bundle.tar.gz`,
		Args: noArguments(""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			command := func(ctx context.Context, streams printer.Streams, arguments ...string) int {
				return run(ctx, deps, streams, arguments...)
			}
			archive, err := bundle.Write(bundle.Node(cmd.Context(), command), deps.Clock.Now())
			if err != nil {
				return err
			}
			return printer.Save(streams, output, archive)
		},
	}
	fileFlag(cmd, &output, "archive (tar.gz)", "tar.gz")
	addRemote(cmd, deps, streams, &remoteCommand{forward: []string{"file"}, single: saveFrom(streams, &output, "bundle")})
	return cmd
}

func versionCommand(streams printer.Streams) *cobra.Command {
	var form, socket string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print versions for bug reports",
		Long: `Use version when you report a bug.

It prints the build of netdra and, if the driver of this node answers, the versions of the driver, the kubelet, the
container runtime and the kernel.`,
		Example: `  netdra version
  sudo netdra version -o json`,
		Args: noArguments(""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			answers, _ := nodeclient.Read(cmd.Context(), nodeclient.New(socket).Get, nodeapi.PathState)
			all := nodeclient.VersionsOf(answers)
			return printer.Show(streams.Out, form, all, func(out *printer.Printer) { out.Printf("%s", all) })
		},
	}
	socketFlag(cmd, &socket)
	formFlag(cmd, &form)
	return cmd
}
