package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/chainrun"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/view"
)

func TestRunShowsAndUndoes(t *testing.T) {
	f := newFake(t)
	code, out, errs := f.run(t.Context(), "run", f.write("t.yaml", linkThenTune), "-d", "up0")
	f.expect(code, exit.OK, out+errs, `
Topology moved, network namespace netdra-1, created for this run

✓ ADD link (host-device)  net1     0 ms
✓ ADD tune (tuning)       net1     0 ms

INTERFACE  KIND  MAC  MTU   STATE  ADDRESSES
eth0       veth  -    1500  up     -
net1       veth  -    1500  up     -

ROUTES  none

✓ DEL tune (tuning)       net1     0 ms
✓ DEL link (host-device)  net1     0 ms
✓ Nothing is left: links, addresses and routes of the namespace and of this machine are as before.
`)
	f.expectNode(clean)
}

func TestRunAsJSON(t *testing.T) {
	f := newFake(t)
	code, out, _ := f.run(t.Context(), "run", f.write("t.yaml", linkThenTune), "-d", "link=0000:3B:02.1", "-o", "json",
		"--pod", "blue/p")
	f.expect(code, exit.OK, out, `
{
  "run": "netdra-1",
  "topology": "moved",
  "outcome": "undone",
  "namespace": "/run/netns/netdra-1",
  "attached": {
    "interfaces": [
      {
        "name": "eth0",
        "index": 14,
        "kind": "veth",
        "mtu": 1500,
        "up": true,
        "carrier": true
      },
      {
        "name": "net1",
        "index": 11,
        "kind": "veth",
        "mtu": 1500,
        "up": true,
        "carrier": true
      }
    ],
    "routes": []
  }
}
`)
}

func TestRunThatFails(t *testing.T) {
	f := newFake(t)
	f.node.Fail("tuning ADD", errors.New("no such sysctl"))
	code, out, errs := f.run(t.Context(), "run", f.write("t.yaml", linkThenTune), "-d", "up0")
	f.expect(code, exit.Failed, out+errs, `
Topology moved, network namespace netdra-1, created for this run

✓ ADD link (host-device)  net1     0 ms
✗ ADD tune (tuning)       net1     0 ms
✓ DEL tune (tuning)       net1     0 ms
✓ DEL link (host-device)  net1     0 ms
✓ Nothing is left: links, addresses and routes of the namespace and of this machine are as before.
netdra: step "tune" (tuning) of topology moved failed at ADD: tuning: no such sysctl
all completed steps were undone
`)
	f.expectNode(clean)
}

// If the kernel lacks VLAN filtering for bridges, only the plugin's error reveals the cause.
func TestRunOnAKernelWithoutAnOption(t *testing.T) {
	f := newFake(t)
	f.node.Fail("tuning ADD", errors.New("failed to setup vlan tag: operation not supported"))
	code, _, errs := f.run(t.Context(), "run", f.write("t.yaml", linkThenTune), "-d", "up0")
	if want := "operation not supported; the kernel of node node-1 or the device's driver may lack a feature that " +
		"tuning needs"; code != exit.Failed ||
		!strings.Contains(errs, want) {
		t.Errorf("exit status %d, want %q in\n%s", code, want, errs)
	}
	f.expectNode(clean)
}

// As on a node, link types that the kernel does not support are reported before the first plugin runs. A plan only adds
// a remark, and does not load modules to check the types.
func TestRunOfWhatTheKernelLacks(t *testing.T) {
	f := newFake(t)
	f.missing = []string{"macvlan"}
	const topology = "apiVersion: networking.dra.io/v1alpha1\nkind: NetworkTopology\nmetadata: {name: m}\nspec: " +
		"{steps: [{name: a, type: macvlan, selector: {cel: 'true'}}]}\n"
	code, out, errs := f.run(t.Context(), "run", f.write("t.yaml", topology), "-d", "up0", "--shared", "a")
	const want = "macvlan\": cannot work on node node-1: the kernel does not support links of type macvlan; install " +
		"the module"
	if code != exit.Refused || !strings.Contains(errs, want) {
		t.Errorf("exit status %d, want %q in\n%s%s", code, want, out, errs)
	}
	const remark = "! chain run rejects this: CNI plugin macvlan cannot work on node node-1: the kernel does not " +
		"support links of type macvlan; install the module"
	for _, rooted := range []bool{true, false} {
		f.unprivileged = !rooted
		code, out, errs := f.run(t.Context(), "plan", f.write("t.yaml", topology), "-d", "up0", "--shared", "a")
		if code != exit.OK || strings.Contains(out, remark) != rooted || !strings.Contains(out, "1. a (macvlan)") {
			t.Errorf("root: %t: exit status of plan is %d, or the wrong output\n%s%s", rooted, code, out, errs)
		}
	}
	f.expectNode(clean)
}

func TestRunInterrupted(t *testing.T) {
	f := newFake(t)
	ctx, interrupt := context.WithCancel(t.Context())
	f.onCall["tuning ADD"] = interrupt
	f.node.Hold("tuning ADD")
	code, out, errs := f.run(ctx, "run", f.write("t.yaml", linkThenTune), "-d", "up0", "--keep")
	f.expect(code, exit.Failed, after(out, "created for this run\n\n")+errs, `
✓ ADD link (host-device)  net1     0 ms
✗ ADD tune (tuning)       net1     0 ms
✓ DEL tune (tuning)       net1     0 ms
✓ DEL link (host-device)  net1     0 ms
✓ Nothing is left: links, addresses and routes of the namespace and of this machine are as before.
netdra: interrupted: step "tune" (tuning) of topology moved failed at ADD: tuning: context canceled
all completed steps were undone
`)
	f.expectNode(clean)
}

func TestRunThatChangesTheMachine(t *testing.T) {
	f := newFake(t)
	f.spoil = func(v *view.View) {
		v.Interfaces[0].Addresses = []string{"10.0.0.1/24"}
		if len(f.node.Calls()) > 4 {
			v.Interfaces[0].Addresses = nil
		}
	}
	code, out, errs := f.run(t.Context(), "run", f.write("t.yaml", linkThenTune), "-d", "up0", "--force")
	f.expect(code, exit.Left, after(out, "ROUTES  none\n\n")+errs, `
✓ DEL tune (tuning)       net1     0 ms
✓ DEL link (host-device)  net1     0 ms

Changes since before the run:
✗ on this machine: link up0 has lost the addresses 10.0.0.1/24
netdra: every step was undone, but the state differs from before the run; see above
`)
}

func TestRunThatCannotBeUndone(t *testing.T) {
	f := newFake(t)
	f.node.Fail("host-device DEL", errors.New("out of order"))
	f.node.Lose()
	topology := f.write("t.yaml", linkThenTune)
	code, out, errs := f.run(t.Context(), "run", topology, "-d", "up0")
	if got := strings.Count(out, "✗ DEL link (host-device)  net1     0 ms\n"); got != chainrun.UndoAttempts {
		t.Errorf("DEL failed %d times, want %d:\n%s", got, chainrun.UndoAttempts, out)
	}
	for _, want := range []string{"netdra: the run could not be undone: ", "host-device: out of order",
		"device up0 is stuck", "\nfix the cause and run \"netdra chain undo --state DIR/state\"\n"} {
		if code != exit.Left || !strings.Contains(errs, want) {
			t.Errorf("exit status %d, want %d; errors are\n%s\nwant %q", code, exit.Left, errs, want)
		}
	}

	code, out, errs = f.run(t.Context(), "run", topology, "-d", "up1")
	if code != exit.Refused || out != "" || !strings.Contains(errs, "an earlier run is not undone") {
		t.Errorf("another run: exit status %d, want a refusal\n%s%s", code, out, errs)
	}
	f.node.Find()
	code, out, errs = f.run(t.Context(), "undo")
	if code != exit.OK || errs != "" ||
		!strings.HasSuffix(out, "✓ DEL link (host-device)  net1     0 ms\n✓ Nothing is left of earlier runs.\n") {
		t.Errorf("undo: exit status %d\n%s%s", code, out, errs)
	}
	f.expectNode(clean)
}

// after returns the part of the output after text.
func after(output, text string) string {
	_, rest, found := strings.Cut(output, text)
	if !found {
		return output
	}
	return rest
}
