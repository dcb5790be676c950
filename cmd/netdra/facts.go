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
		Long: `Use facts to see a machine's network devices as the driver discovers them, before any policy applies,
or to record a machine for a bug report. It is read-only and does not need root. In a network namespace it needs a
sysfs that was mounted there, as "ip netns exec" does.

It lists physical and virtual functions, bridges, bonds, VLANs and all other links except the loopback. Columns: IF is
the interface, if the device has one here; PF and VF are the physical function and index of a virtual function; VFS is
the number of virtual functions, existing and possible; SPEED is in Mbit/s. Lines with an exclamation mark are
problems: data that is unreadable or inconsistent.

With --record the facts are also written to a directory, as two files that --from reads on any machine. The recording
contains no IP addresses, routes or serial numbers. Each MAC address is replaced consistently by a random one, also in
interface names that contain it (enx0242ac110002). The link addresses of tunnels, which are IP addresses, are replaced
in the same way. --with-addresses keeps all of these. Links that are in pods are not on the host and not part of the
recording.

Exit status: 0 the devices are shown, 2 the machine, or a file, cannot be read.`,
		Example: `  netdra facts
  netdra facts -o json | jq '.devices[] | select(.type == "pf")'
  netdra facts --record worker-1
  netdra facts --from worker-1 -o yaml`,
		Args: noArguments("to show one device, run netdra explain {}"),
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.Run(cmd.Context(), streams) },
	}
	set := cmd.Flags()
	set.StringVar(&flags.Record, "record", "", "directory to record the machine in; created if it does not exist")
	set.StringVar(&flags.Recording, "from", "", "directory of a recording, instead of this machine")
	set.BoolVar(&flags.WithAddresses, "with-addresses", false,
		"with --record: keep MAC addresses and hardware switch IDs")
	cmd.MarkFlagsMutuallyExclusive("from", "record")
	cmd.MarkFlagsMutuallyExclusive("from", "with-addresses") // a recording may have no addresses
	for _, name := range []string{"record", "from"} {
		_ = cmd.MarkFlagDirname(name) // the flag exists
	}
	formFlag(cmd, &flags.Form)
	return cmd
}
