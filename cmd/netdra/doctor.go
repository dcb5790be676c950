package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/clusterwide"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/doctor"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/remote"
)

func doctorCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	flags := &doctor.Options{}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this node and suggest fixes",
		Long: `Use doctor first when pods with claims do not start on a node. Run it as root on the node, or in a pod
with --root where the node's file system is mounted. It changes nothing.

It checks whether the container runtime calls the driver and reads what it writes; versions with known faults; paths
that differ between driver, kubelet and container runtime; CNI plugins that topologies name; other programs that use
the same devices; disks; policies and topologies that are not accepted; and what was left over. For each problem it
prints where it is, why it matters, and what to do. With --kubeconfig, or $KUBECONFIG, it also checks API groups,
features and the time of the API server; of another node all of these but the time.

Exit status: 0 nothing is wrong, 1 something is wrong (✗; a risk, !, does not count), 2 nothing could be checked.`,
		Example: `  sudo netdra doctor
  sudo netdra doctor --all                                      # also what is fine
  sudo netdra doctor --kubeconfig /etc/kubernetes/kubelet.conf
  sudo netdra doctor -o json | jq '.[] | select(.level == "fail")'`,
		Args: noArguments(""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := printer.CheckForm(flags.Form); err != nil {
				return err
			}
			input, err := flags.Gather(cmd.Context())
			if err != nil {
				return err
			}
			findings := doctor.Examine(input)
			if flags.Form == printer.FormText {
				out := printer.New(streams.Out)
				doctor.PrintFindings(out, findings, flags.All)
				out.Printf("%s", out.Colour(printer.Dim, doctor.VersionsOfInput(input).String()))
			} else if err := printer.Encode(streams.Out, flags.Form, findings); err != nil {
				return err
			}
			if doctor.Count(findings, doctor.Fail) > 0 {
				return exit.Reported()
			}
			return nil
		},
	}
	set := cmd.Flags()
	rootFlag(cmd, &flags.Root)
	set.StringVar(&flags.Socket, "socket", os.Getenv(nodeclient.SocketVariable),
		"socket of the driver (default: "+nodeclient.ShippedSocket()+" below --root)")
	set.StringVar(&flags.Readyz, "readyz", "http://127.0.0.1:9680/readyz",
		"URL of the driver's readiness probe, read if its socket does not answer; empty: not read")
	set.StringVar(&flags.Kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"),
		"kubeconfig file of the API server; empty: it is not asked")
	set.BoolVar(&flags.All, "all", false, "also print what is fine")
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
