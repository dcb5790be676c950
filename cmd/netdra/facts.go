package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/discovery"
)

// factsFlags are the flags of "facts".
type factsFlags struct {
	record, from  string
	withAddresses bool
	form          string
}

func factsCommand(to console) *cobra.Command {
	flags := &factsFlags{}
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
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.run(cmd.Context(), to) },
	}
	set := cmd.Flags()
	set.StringVar(&flags.record, "record", "", "directory to record the machine in; it is made if it does not exist")
	set.StringVar(&flags.from, "from", "", "directory with a recording, which is shown in place of this machine")
	set.BoolVar(&flags.withAddresses, "with-addresses", false, "keep MAC addresses, and the ids of switches in hardware")
	cmd.MarkFlagsMutuallyExclusive("from", "record")
	cmd.MarkFlagsMutuallyExclusive("from", "with-addresses") // a recording has what it has
	for _, name := range []string{"record", "from"} {
		_ = cmd.MarkFlagDirname(name) // the name of a flag that exists is no error
	}
	formFlag(cmd, &flags.form)
	return cmd
}

func (f *factsFlags) run(ctx context.Context, to console) error {
	if err := checkForm(f.form); err != nil {
		return err
	}
	recording, err := f.recording(ctx)
	if err != nil {
		return err
	}
	sources, err := recording.Sources()
	if err != nil {
		return fmt.Errorf("cannot use the recording: %w", err)
	}
	facts, err := discovery.Read(ctx, sources)
	if err != nil {
		return err
	}
	if f.record != "" {
		if err := recording.Write(f.record); err != nil {
			return fmt.Errorf("--record: %w", err)
		}
		newPrinter(to.err).good("recorded in %s", f.record)
	}
	if f.form != formText {
		return printResult(to.out, f.form, facts)
	}
	printFacts(newPrinter(to.out), facts)
	return nil
}

// recording is what the facts are read from, also those of this machine: what is shown is then what is recorded.
func (f *factsFlags) recording(ctx context.Context) (discovery.Recording, error) {
	if f.from != "" {
		return openRecording(f.from)
	}
	sources, err := discovery.Host()
	if err != nil {
		return discovery.Recording{}, err
	}
	defer sources.Close()
	recording, err := discovery.Record(ctx, sources)
	if err != nil || f.withAddresses {
		return recording, err
	}
	return recording.WithoutAddresses(), nil
}

// openRecording names the directory where it can't be used.
func openRecording(dir string) (discovery.Recording, error) {
	recording, err := discovery.OpenRecording(os.DirFS(dir))
	if err != nil {
		err = fmt.Errorf("--from %s: %w; name a directory that \"netdra facts --record\" has written", dir, err)
	}
	return recording, err
}

// printFacts writes facts for people.
func printFacts(out *printer, facts discovery.Facts) {
	if len(facts.Devices)+len(facts.Orphans) == 0 {
		out.say("there are no network devices but the loopback")
	} else {
		rows := [][]string{{"NAME", "TYPE", "IF", "STATE", "PCI", "NUMA", "PF", "VF", "VFS", "SPEED", "DRIVER", "MASTER", "PARENT", "NOTES"}}
		for i := range facts.Devices {
			rows = append(rows, factsRow(&facts.Devices[i]))
		}
		for i := range facts.Orphans {
			rows = append(rows, factsRow(&facts.Orphans[i]))
		}
		out.table(rows)
	}
	for _, problem := range facts.Problems {
		out.warn("%s", problem)
	}
}

// factsRow is the row of one device. What it does not have is "-".
func factsRow(d *discovery.Device) []string {
	functions := ""
	if d.SRIOVCapable {
		functions = fmt.Sprintf("%d/%d", d.NumVFs, d.TotalVFs)
	}
	speed := ""
	if d.LinkSpeed > 0 {
		speed = strconv.Itoa(d.LinkSpeed)
	}
	pf := string(d.PFName)
	if pf == "" {
		pf = string(d.PFAddress) // of an orphan
	}
	row := []string{
		string(d.Name), d.Type, string(d.Interface), d.OperState, string(d.PCIAddress), index(d.NUMANode),
		pf, index(d.VFIndex), functions, speed, d.Driver, string(d.Master), string(d.Parent), strings.Join(notes(d), ", "),
	}
	for i := range row {
		row[i] = orDefault(row[i], "-")
	}
	return row
}

// index returns a number that a device may not have.
func index(n int) string {
	if n == discovery.None {
		return ""
	}
	return strconv.Itoa(n)
}

// notes are the facts that few devices have.
func notes(d *discovery.Device) []string {
	var notes []string
	for _, note := range []struct {
		text  string
		holds bool
	}{
		{"default route", d.DefaultRoute},
		{"vlan " + strconv.Itoa(d.VLANID), d.VLANID != discovery.None},
		{"ovs", d.BridgeType == "ovs"},
		{"vlan filtering", d.VLANFiltering},
		{"representor " + d.PortName, d.Representor},
		{strings.TrimSpace("rdma " + strings.Join(d.RDMADevices, " ")), d.RDMA},
		{"no name while its physical function is not here", d.Name == ""},
	} {
		if note.holds {
			notes = append(notes, note.text)
		}
	}
	return notes
}
