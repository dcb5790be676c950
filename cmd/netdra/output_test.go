package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/chainrun"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/view"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

func TestPrintView(t *testing.T) {
	var out bytes.Buffer
	chainrun.PrintView(printer.New(&out), view.View{
		Interfaces: []view.Interface{
			{Name: "lo", Kind: "loopback", MTU: 65536},
			{Name: "net1", Kind: "macvlan", MAC: "02:00:00:00:00:01", MTU: 1400, Up: true, Carrier: true,
				Addresses: []string{"10.0.0.2/24", "fd00::2/64"}},
			{Name: "net2", Kind: "veth", MAC: "02:00:00:00:00:02", MTU: 1500, Up: true},
		},
		Routes: []view.Route{
			{Destination: "default", Gateway: "10.0.0.1", Interface: "net1", Metric: 100},
			{Destination: "10.9.0.0/16", Type: "blackhole"},
		},
	})
	want := `
INTERFACE  KIND      MAC                MTU    STATE           ADDRESSES
lo         loopback  -                  65536  down            -
net1       macvlan   02:00:00:00:00:01  1400   up              10.0.0.2/24, fd00::2/64
net2       veth      02:00:00:00:00:02  1500   up, no carrier  -

ROUTES
default via 10.0.0.1 dev net1 metric 100
blackhole 10.9.0.0/16
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestMilliseconds(t *testing.T) {
	for duration, want := range map[time.Duration]string{
		400 * time.Microsecond: "0 ms", 12345 * time.Microsecond: "12 ms", 9999 * time.Millisecond: "9999 ms",
		12340 * time.Millisecond: "12.3 s",
	} {
		if got := printer.Milliseconds(duration); got != want {
			t.Errorf("%v is printed as %q, want %q", duration, got, want)
		}
	}
}

func TestCallLog(t *testing.T) {
	var out bytes.Buffer
	(&chainrun.Narrator{Full: &printer.Printer{W: &out}}).Record(executor.Call{
		Command: "ADD", Plugin: "/opt/cni/bin/bridge", Step: "port", Instance: 1, Duration: 12 * time.Millisecond,
		Env: []string{"CNI_COMMAND=ADD", "PATH=/bin"}, Stdin: []byte(`{"bridge":"br0"}`),
		Output: executor.CallOutput{Stdout: []byte("oops\n"), Stderr: []byte("a\nb\n"), ExitCode: 3},
		Err:    errors.New("bridge: failed"),
	})
	want := `
--- ADD bridge, step port[1]: exit status 3 after 12 ms
    plugin  /opt/cni/bin/bridge
    CNI_COMMAND=ADD
    stdin
      {
        "bridge": "br0"
      }
    stdout
      oops
    stderr
      a
      b
    error
      bridge: failed
`
	if diff := cmp.Diff(strings.TrimLeft(want, "\n"), out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestUnknownCommands(t *testing.T) {
	f := newFake(t)
	code, out, errs := f.run(t.Context(), "rnu")
	f.expect(code, exit.Refused, out+errs,
		"netdra: unknown command \"rnu\" for \"netdra chain\"; see netdra chain --help\n")
}

// Every command has a short description, a long help text and a usage line.
func TestHelp(t *testing.T) {
	f := newFake(t)
	root := rootCommand(f.machine(), printer.Streams{})
	commands := append(root.Commands(), root.Commands()[0].Commands()...)
	for _, cmd := range append(commands, root) {
		if cmd.Short == "" || cmd.Long == "" || cmd.Example == "" && !cmd.IsAdditionalHelpTopicCommand() {
			t.Errorf("%s has no Short, Long or Example", cmd.CommandPath())
		}
	}
	code, out, errs := f.run(t.Context(), "validate", "--help")
	if code != exit.OK || errs != "" || !strings.Contains(out, "netdra chain validate TOPOLOGY...") {
		t.Errorf("exit status %d\n%s%s", code, out, errs)
	}
}

// Plugin output and interface names must not control the user's terminal.
func TestHarmless(t *testing.T) {
	hostile := "a\x1b[2Jb\x1b]0;title\x07c\rd\x9be\u009bf\u202eg\x7f\x1b[32mh\tÄ 東\u00a0\n"
	marked := "a�[2Jb�]0;title�c�d�e�f�g�"
	var out bytes.Buffer
	(&printer.Printer{W: &out}).Printf("%s", hostile+"x")
	if diff := cmp.Diff(marked+"�[32mh\tÄ 東\u00a0\nx\n", out.String()); diff != "" {
		t.Errorf("without colours (-want +got):\n%s", diff)
	}
	out.Reset()
	(&printer.Printer{W: &out, Colours: true}).Bad("%s", hostile+"x")
	if diff := cmp.Diff("\x1b[31m✗\x1b[0m "+marked+"\x1b[32mh\tÄ 東\u00a0\nx\n", out.String()); diff != "" {
		t.Errorf("with colours (-want +got):\n%s", diff)
	}
	out.Reset()
	(&printer.Printer{W: &out}).Table([][]string{{"NAME", "TYPE"}, {"e\tth\n0", "nic\x1b[2J"}})
	if diff := cmp.Diff("NAME    TYPE\ne th 0  nic�[2J\n", out.String()); diff != "" {
		t.Errorf("a table (-want +got):\n%s", diff)
	}
}
