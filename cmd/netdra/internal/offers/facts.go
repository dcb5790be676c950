package offers

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/discovery"
)

// FactsOptions are the flags of "netdra facts".
type FactsOptions struct {
	Record, Recording string
	WithAddresses     bool
	Form              string
}

// Run prints the facts, and records them if requested.
func (f *FactsOptions) Run(ctx context.Context, streams printer.Streams) error {
	recording, err := f.openSource(ctx)
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
	if f.Record != "" {
		if err := recording.Write(f.Record); err != nil {
			return fmt.Errorf("--record: %w", err)
		}
		printer.New(streams.Err).Good("recorded in %s%s", f.Record, f.madeUp())
	}
	return printer.Show(streams.Out, f.Form, facts, func(out *printer.Printer) { printFacts(out, facts) })
}

// openSource returns the recording to read the facts from. It also records this machine, so that --record prints
// the data that it writes and the author of a bug report can see which information the recording discloses. Without
// --record, no data leaves the machine, so policies are evaluated with the real addresses.
func (f *FactsOptions) openSource(ctx context.Context) (discovery.Recording, error) {
	if f.Recording != "" {
		return openRecording("--from", f.Recording)
	}
	sources, err := discovery.Host()
	if err != nil {
		return discovery.Recording{}, err
	}
	defer sources.Close()
	recording, err := discovery.Record(ctx, sources)
	if err != nil || f.WithAddresses || f.Record == "" {
		return recording, err
	}
	return recording.WithoutAddresses(), nil
}

// madeUp returns a note that the addresses in a recording do not belong to the machine.
func (f *FactsOptions) madeUp() string {
	if f.WithAddresses {
		return ""
	}
	return ", with made-up MAC addresses (--with-addresses keeps them)"
}

// openRecording opens a recording. Its error includes the flag and the directory.
func openRecording(flag, dir string) (discovery.Recording, error) {
	recording, err := discovery.OpenRecording(os.DirFS(dir))
	if err != nil {
		err = fmt.Errorf("%s %s: %w; use a directory written by \"netdra facts --record\"", flag, dir, err)
	}
	return recording, err
}

// printFacts prints facts as text.
func printFacts(out *printer.Printer, facts discovery.Facts) {
	if len(facts.Devices)+len(facts.Orphans) == 0 {
		out.Printf("no network devices except the loopback")
	} else {
		rows := [][]string{FactsHead()}
		for i := range facts.Devices {
			rows = append(rows, FactsRow(&facts.Devices[i]))
		}
		for i := range facts.Orphans {
			rows = append(rows, FactsRow(&facts.Orphans[i]))
		}
		out.Table(printer.WithoutEmpty(rows))
	}
	for _, problem := range facts.Problems {
		out.Warn("%s", problem)
	}
}

// FactsHead returns the heading of the table of facts.
func FactsHead() []string {
	return []string{"NAME", "TYPE", "IF", "STATE", "PCI", "NUMA", "PF", "VF", "VFS", "SPEED", "DRIVER", "MASTER", "PARENT",
		"NOTES"}
}

// FactsRow returns a device's row in the table. Missing values are "-".
func FactsRow(d *discovery.Device) []string {
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
		pf, index(d.VFIndex), functions, speed, d.Driver, string(d.Master), string(d.Parent), strings.Join(notes(d),
			", "),
	}
	for i := range row {
		row[i] = cmp.Or(row[i], "-")
	}
	return row
}

// index formats an optional number; "" if the device does not have it.
func index(n int) string {
	if n == discovery.None {
		return ""
	}
	return strconv.Itoa(n)
}

// notes returns facts that only a few devices have.
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
		{printer.WithDetails(strings.TrimSpace("rdma "+strings.Join(d.RDMADevices, " ")), d.RDMALinkLayer, d.RDMANetns),
			d.RDMA},
		{"no name: its physical function is in another namespace", d.Name == ""},
	} {
		if note.holds {
			notes = append(notes, note.text)
		}
	}
	return notes
}
