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
that mounts the node's file system, with --root. It is read-only.

It checks whether the container runtime calls the driver and reads its CDI specs; component versions with known bugs;
paths that differ between the driver, the kubelet and the container runtime; the CNI plugins that topologies use;
other programs that manage the same devices; disks; rejected policies and topologies; and leftovers of pods. For each
problem it prints the location, the impact and the fix. With --kubeconfig, or $KUBECONFIG, it also checks the API
groups and feature gates of the API server.

Exit status: 0 no faults, 1 a fault was found (✗; risks, !, do not count), 2 nothing could be checked.`,
		Example: `  sudo netdra doctor
  sudo netdra doctor --all                                      # also print passed checks
  sudo netdra doctor --kubeconfig /etc/kubernetes/kubelet.conf
  sudo netdra doctor -o json | jq '.[] | select(.level == "fail")'`,
		Args: noArguments(""),
		RunE: func(cmd *cobra.Command, _ []string) error {
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
		"URL of the driver's readiness probe, used if its socket does not answer; empty: not used")
	set.StringVar(&flags.Kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"),
		"kubeconfig file of the API server; empty: the API server is not checked")
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
