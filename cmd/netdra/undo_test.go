package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/chainrun"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/view"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/journal"
)

func (f *fake) keep() {
	f.t.Helper()
	if code, out, errs := f.run(f.t.Context(), "run", f.write("t.yaml", linkThenTune), "-d", "up0",
		"--keep"); code != exit.OK {
		f.t.Fatalf("exit status %d\n%s%s", code, out, errs)
	}
}

// open opens the run journal between two runs, applies change, and closes the journal.
func (f *fake) open(change func(*chainrun.RunJournal)) {
	f.t.Helper()
	opened, err := chainrun.OpenRunJournal(f.state, clock.RealClock{})
	if err != nil {
		f.t.Fatal(err)
	}
	change(opened)
	if err := opened.Close(); err != nil {
		f.t.Fatal(err)
	}
}

func TestKeepThenUndo(t *testing.T) {
	f := newFake(t)
	code, out, errs := f.run(t.Context(), "run", f.write("t.yaml", linkThenTune), "-d", "up0", "--keep")
	f.expect(code, exit.OK, after(out, "ROUTES  none\n\n")+errs,
		"✓ Attached and kept. Inspect it with \"ip netns exec netdra-1 ip addr\"; undo it with \"netdra chain undo "+
			"--state DIR/state\".\n")
	f.expectNode("host [br0 up1] pods [netdra-1[net1]] leases [netdra-1/net1]")

	f.spoil = func(v *view.View) {
		v.Interfaces = append(v.Interfaces, view.Interface{Name: "docker0", Kind: "bridge", Index: 99})
	}
	code, out, errs = f.run(t.Context(), "undo")
	f.expect(code, exit.OK, after(out, ": attached\n")+errs, `
✓ DEL tune (tuning)       net1     0 ms
✓ DEL link (host-device)  net1     0 ms
! changed since the start of the run, perhaps by another process: on this machine: link docker0 (bridge) is new
✓ Nothing is left of earlier runs.
`)
	f.expectNode(clean)
	code, out, errs = f.run(t.Context(), "undo")
	f.expect(code, exit.OK, out+errs, "✓ Nothing is left of earlier runs.\n")
}

func TestUndoWithoutRuns(t *testing.T) {
	f := newFake(t)
	code, out, errs := f.run(t.Context(), "undo")
	f.expect(code, exit.OK, out+errs, "✓ There is nothing to undo: no run was ever recorded in DIR/state.\n")
}

func TestUndoWaitsForEarlierPlugins(t *testing.T) {
	f := newFake(t)
	f.keep()
	f.stuck = errors.New("a plugin still runs")
	code, _, errs := f.run(t.Context(), "undo")
	if code != exit.Left ||
		!strings.Contains(errs,
			`nothing was undone: a plugin still runs; stop it ("fuser DIR/state/cni.lock" shows it)`) {
		t.Errorf("exit status %d\n%s", code, errs)
	}
	f.expectNode("host [br0 up1] pods [netdra-1[net1]] leases [netdra-1/net1]")
}

func TestForget(t *testing.T) {
	f := newFake(t)
	f.keep()
	f.node.Fail("host-device DEL", errors.New("out of order"))
	f.node.Lose()
	code, _, errs := f.run(t.Context(), "undo")
	if code != exit.Left || !strings.Contains(errs, "--forget removes the record and leaves the rest on this machine") {
		t.Errorf("exit status %d\n%s", code, errs)
	}
	code, out, errs := f.run(t.Context(), "undo", "--forget")
	if code != exit.OK || errs != "" || !strings.Contains(out, "! forgotten: ") {
		t.Errorf("exit status %d\n%s%s", code, out, errs)
	}
	if got := f.node.String(); !strings.HasPrefix(got, "host [br0 up1] pods [] ") {
		t.Errorf("unexpected machine state %s", got)
	}
	code, out, errs = f.run(t.Context(), "undo")
	f.expect(code, exit.OK, out+errs, "✓ Nothing is left of earlier runs.\n")
}

// A run may be killed after writing its record and before running its first step.
func TestUndoOfARunThatRanNothing(t *testing.T) {
	f := newFake(t)
	f.open(func(s *chainrun.RunJournal) {
		if err := errors.Join(s.Runs.Put("netdra-2", chainrun.RunRecord{Topology: "moved", Pin: "/run/netns/netdra-2"}),
			f.node.Pin("", "/run/netns/netdra-2")); err != nil {
			t.Fatal(err)
		}
	})
	code, _, errs := f.run(t.Context(), "run", f.write("t.yaml", linkThenTune), "-d", "up0")
	if code != exit.Refused || !strings.Contains(errs, ": nothing is attached") {
		t.Errorf("exit status %d\n%s", code, errs)
	}
	code, out, errs := f.run(t.Context(), "undo")
	if code != exit.OK || errs != "" {
		t.Errorf("exit status %d\n%s%s", code, out, errs)
	}
	f.expectNode(clean)
}

func TestLeftoversAreRetried(t *testing.T) {
	f := newFake(t)
	f.keep()
	f.open(func(s *chainrun.RunJournal) { // as the engine does after the last attempt
		attachments, _, err := s.Chains.Load(executor.New(executor.Options{}))
		if err != nil {
			t.Fatal(err)
		}
		only := *attachments["netdra-1"]
		only.Steps = only.Steps[:1]
		leftover := executor.Leftover{Key: "netdra-1/x/link/0", Attachment: only, Reason: "out of order"}
		if err := errors.Join(s.Chains.SaveLeftover(leftover), s.Chains.Delete("netdra-1"),
			s.Runs.Delete("netdra-1")); err != nil {
			t.Fatal(err)
		}
	})
	code, _, errs := f.run(t.Context(), "run", f.write("t.yaml", linkThenTune), "-d", "up0")
	if code != exit.Refused || !strings.Contains(errs, "could not be undone: out of order") {
		t.Errorf("exit status %d\n%s", code, errs)
	}
	code, out, errs := f.run(t.Context(), "undo")
	f.expect(code, exit.OK, out+errs, `
✓ step "link" (host-device) of topology moved of netdra-1 is undone now
✓ Nothing is left of earlier runs.
`)
}

func TestDamagedRecords(t *testing.T) {
	f := newFake(t)
	f.open(func(s *chainrun.RunJournal) {
		bucket, err := journal.NewBucket[string](s.Opened.DB, "attachments")
		if err == nil {
			err = errors.Join(bucket.Put("netdra-3", "no attachment"),
				s.Runs.Put("netdra-3", chainrun.RunRecord{Topology: "moved", Pin: "/run/netns/netdra-3"}))
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	for _, arguments := range [][]string{{"run", f.write("t.yaml", linkThenTune), "-d", "up0"}, {"undo"}} {
		code, _, errs := f.run(t.Context(), arguments...)
		if code == exit.OK || !strings.Contains(errs, "cannot be read") {
			t.Errorf("%v: exit status %d\n%s", arguments, code, errs)
		}
	}
	if code, out, errs := f.run(t.Context(), "undo", "--forget"); code != exit.OK {
		t.Errorf("exit status %d\n%s%s", code, out, errs)
	}
	code, out, errs := f.run(t.Context(), "undo")
	f.expect(code, exit.OK, out+errs, "✓ Nothing is left of earlier runs.\n")
}

func TestAJournalThatIsUnreadable(t *testing.T) {
	f := newFake(t)
	f.open(func(*chainrun.RunJournal) {})
	f.write("state/journal.db", strings.Repeat("damage", 10000))
	code, _, errs := f.run(t.Context(), "undo")
	if code != exit.Refused || !strings.Contains(errs, "the journal of earlier runs could not be read") {
		t.Errorf("exit status %d\n%s", code, errs)
	}
	if code, out, errs := f.run(t.Context(), "undo"); code != exit.OK {
		t.Errorf("exit status %d\n%s%s", code, out, errs)
	}
}

func TestOneRunAtATime(t *testing.T) {
	f := newFake(t)
	f.open(func(*chainrun.RunJournal) {
		code, _, errs := f.run(context.Background(), "run", f.write("t.yaml", linkThenTune), "-d", "up0")
		if code != exit.Refused || !strings.Contains(errs,
			"cannot open the journal in DIR/state: another netdra is using it") {
			t.Errorf("exit status %d\n%s", code, errs)
		}
	})
}
