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
		Short: "Show discovered network devices",
		Long: `Use facts to see a machine's network devices as the driver discovers them, before any policy, or to
record a machine for a bug report. It changes nothing and needs no root. In a network namespace it needs a sysfs that
was mounted there, as "ip netns exec" does.

It lists physical and virtual functions, bridges, bonds, VLANs and all other links except the loopback. Columns: IF is
the interface, if the device has one here; PF and VF are the physical function and index of a virtual function; VFS is
the number of virtual functions, existing and possible; SPEED is in Mbit/s. Lines with an exclamation mark are
problems: things that could not be read or make no sense.

With --record what is printed is also written to a directory, as two files that --from reads on any machine. They have
no IP addresses, routes or serial numbers. MAC addresses are then replaced by made-up ones, each by the same one
everywhere, also where an interface is named after it (enx0242ac110002); so are the link addresses of tunnels, which are
IP addresses. --with-addresses keeps them. Links that are in pods are not on the host, and no part of it.`,
		Example: `  netdra facts
  netdra facts -o json | jq '.devices[] | select(.type == "pf")'
  netdra facts --record worker-1
  netdra facts --from worker-1 -o yaml`,
		Args: noArguments("to see one device, netdra explain {}"),
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.Run(cmd.Context(), streams) },
	}
	set := cmd.Flags()
	set.StringVar(&flags.Record, "record", "", "directory to record the machine in; created if it does not exist")
	set.StringVar(&flags.Recording, "from", "", "directory of a recording, in place of this machine")
	set.BoolVar(&flags.WithAddresses, "with-addresses", false, "with --record: keep MAC addresses and hardware switch IDs")
	cmd.MarkFlagsMutuallyExclusive("from", "record")
	cmd.MarkFlagsMutuallyExclusive("from", "with-addresses") // a recording may have no addresses
	for _, name := range []string{"record", "from"} {
		_ = cmd.MarkFlagDirname(name) // the flag exists
	}
	formFlag(cmd, &flags.Form)
	return cmd
}
