package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/doctor"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

func doctorCommand(streams printer.Streams) *cobra.Command {
	flags := &doctor.Options{}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what is wrong or risky on this node, and what to do about it",
		Long: `doctor looks at the node and at what its driver says: whether the container runtime calls the driver and reads what it writes,
versions with known faults, paths that differ between driver, kubelet and container runtime, CNI plugins that topologies name,
others that use the same devices, disks, policies and topologies that are not accepted, and what was left over. It changes
nothing. Run it as root on the node, or in a pod with --root where the node's file system is mounted.

With --kubeconfig, or $KUBECONFIG, the API server is asked, too: for API groups, features and the time.

Exit status: 0 nothing is wrong, 1 something is (✗; what is only risky, !, does not count), 2 nothing could be looked at.`,
		Example: `  sudo netdra doctor
  sudo netdra doctor --all                                      # also what is fine
  sudo netdra doctor --kubeconfig /etc/kubernetes/kubelet.conf
  sudo netdra doctor -o json | jq '.[] | select(.level == "fail")'`,
		Args: cobra.NoArgs,
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
	set.StringVar(&flags.Root, "root", "/", "directory with the node's file system")
	set.StringVar(&flags.Socket, "socket", os.Getenv(nodeclient.SocketVariable), "where the driver answers (default: "+nodeclient.ShippedSocket+" below --root)")
	set.StringVar(&flags.Readyz, "readyz", "http://127.0.0.1:9680/readyz", "the driver's probe, which is asked if its socket does not answer; empty: none")
	set.StringVar(&flags.Kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "how to reach the API server; empty: it is not asked")
	set.BoolVar(&flags.All, "all", false, "show also what is fine")
	formFlag(cmd, &flags.Form)
	_ = cmd.MarkFlagDirname("root") // the name of a flag that exists is no error
	return cmd
}
