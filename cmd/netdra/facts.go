package main

import (
	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/offers"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

func factsCommand(streams printer.Streams) *cobra.Command {
	flags := &offers.FactsOptions{}
	cmd := &cobra.Command{
		Use:   "facts",
		Short: "Show what the driver knows of a machine's network devices",
		Long: `facts shows the network devices of this machine as the driver sees them, before any policy: physical and virtual
functions, bridges, bonds, VLANs and all other links but the loopback. It changes nothing and needs no root. In a
network namespace it needs a sysfs that was mounted there, as "ip netns exec" does.

The columns of the text form: IF is the interface, where the device has one here; PF and VF are the physical function and
index of a virtual function; VFS is how many virtual functions there are and can be; SPEED is in Mbit/s. The lines with
an exclamation mark are problems: things that could not be read or make no sense.

With --record the same is also written to a directory, as two files that --from reads on any machine: for bug reports and
tests. There are no IP addresses, routes or serial numbers in it.

MAC addresses are replaced by made-up ones unless there is --with-addresses, in what is shown and in what is recorded:
the same one by the same one, also where an interface is named after it (enx0242ac110002). So are the link addresses of
tunnels, which are IP addresses.`,
		Example: `  netdra facts
  netdra facts -o json | jq '.devices[] | select(.type == "pf")'
  netdra facts --record worker-1
  netdra facts --from worker-1 -o yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.Run(cmd.Context(), streams) },
	}
	set := cmd.Flags()
	set.StringVar(&flags.Record, "record", "", "directory to record the machine in; it is made if it does not exist")
	set.StringVar(&flags.Recording, "from", "", "directory with a recording, which is shown in place of this machine")
	set.BoolVar(&flags.WithAddresses, "with-addresses", false, "keep MAC addresses, and the ids of switches in hardware")
	cmd.MarkFlagsMutuallyExclusive("from", "record")
	cmd.MarkFlagsMutuallyExclusive("from", "with-addresses") // a recording has what it has
	for _, name := range []string{"record", "from"} {
		_ = cmd.MarkFlagDirname(name) // the name of a flag that exists is no error
	}
	formFlag(cmd, &flags.Form)
	return cmd
}
