package offers

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
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
		note := ", with made-up MAC addresses (--with-addresses keeps them)"
		if f.WithAddresses {
			note = ""
		}
		printer.New(streams.Err).Good("recorded in %s%s", f.Record, note)
	}
	return printer.Show(streams.Out, f.Form, facts, func(out *printer.Printer) { printFacts(out, facts) })
}

// openSource returns the recording from which to read the facts. Facts about this machine are also read through a
// recording, so that --record prints exactly the data that it writes. This allows the author of a bug report to see
// which information the recording discloses. Without --record, no data leaves the machine, so policies are evaluated
// with the real addresses.
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

// openRecording opens a recording. Errors include the flag and the directory.
func openRecording(flag, dir string) (discovery.Recording, error) {
	recording, err := discovery.OpenRecording(os.DirFS(dir))
	if err != nil {
		err = fmt.Errorf("%s %s: %w; use a directory written by \"netdra facts --record\"", flag, dir, err)
	}
	return recording, err
}

func printFacts(out *printer.Printer, facts discovery.Facts) {
	if devices := slices.Concat(facts.Devices, facts.Orphans); len(devices) == 0 {
		out.Printf("no network devices except the loopback")
	} else {
		out.Table(printer.Rows(printer.FormTable, devices, FactsColumns()))
	}
	for _, problem := range facts.Problems {
		out.Warn("%s", problem)
	}
}

// FactsColumns returns the columns of the facts table. Orphans only have the address of their physical function.
func FactsColumns() []printer.Column[discovery.Device] {
	type device = discovery.Device
	return []printer.Column[device]{
		{Title: "NAME", Value: func(d *device) string { return string(d.Name) }},
		{Title: "TYPE", Value: func(d *device) string { return d.Type }},
		{Title: "IF", Value: func(d *device) string { return string(d.Interface) }},
		{Title: "STATE", Value: func(d *device) string { return d.OperState }},
		{Title: "PCI", Value: func(d *device) string { return string(d.PCIAddress) }},
		{Title: "NUMA", Value: func(d *device) string { return index(d.NUMANode) }},
		{Title: "PF", Value: func(d *device) string { return cmp.Or(string(d.PFName), string(d.PFAddress)) }},
		{Title: "VF", Value: func(d *device) string { return index(d.VFIndex) }},
		{Title: "VFS", Value: functions},
		{Title: "SPEED", Value: speed},
		{Title: "DRIVER", Value: func(d *device) string { return d.Driver }},
		{Title: "MASTER", Value: func(d *device) string { return string(d.Master) }},
		{Title: "PARENT", Value: func(d *device) string { return string(d.Parent) }},
		{Title: "NOTES", Value: func(d *device) string { return strings.Join(notes(d), ", ") }},
	}
}

func speed(d *discovery.Device) string {
	if d.LinkSpeed == 0 {
		return ""
	}
	return strconv.Itoa(d.LinkSpeed)
}

func functions(d *discovery.Device) string {
	if !d.SRIOVCapable {
		return ""
	}
	return fmt.Sprintf("%d/%d", d.NumVFs, d.TotalVFs)
}

func index(n int) string {
	if n == discovery.None {
		return ""
	}
	return strconv.Itoa(n)
}

// notes returns the facts that apply to only a few devices.
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
