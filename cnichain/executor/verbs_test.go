package executor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

// hastyClock is a clock that advances only when a goroutine is waiting on it.
type hastyClock struct {
	*testingclock.FakeClock
	waited time.Duration
}

func (c *hastyClock) After(d time.Duration) <-chan time.Time {
	c.waited += d
	c.Step(d)
	done := make(chan time.Time, 1)
	done <- c.Now()
	return done
}

// withGIDs is like withRDMA, with a clock that records how long an attachment waits.
func withGIDs(t *testing.T, mode string) (*workbench, *executor.Attachment, *hastyClock) {
	w, made := withRDMA(t, mode, rdmaStep)
	clock := &hastyClock{FakeClock: w.clock}
	w.executor = executor.New(executor.Options{Exec: w.node, Host: w.node, Journal: w.journal, Clock: clock,
		Dirs: []string{cnitest.PluginDir}})
	return w, made, clock
}

// The kernel adds the GID some time after the address. The reported GIDs are recorded in the journal.
func TestAttachmentWaitsForGIDs(t *testing.T) {
	for _, mode := range []string{cnichain.RDMAShared, cnichain.RDMAExclusive} {
		w, made, clock := withGIDs(t, mode)
		w.node.DelayGIDs(3)
		w.must(w.add(made))
		verbs := w.restarted().Steps[0].Verbs
		if verbs == nil || verbs.Unknown != "" || len(verbs.Devices) != 1 || verbs.Devices[0].Name != "mlx5_0" ||
			verbs.Devices[0].Verbs != "uverbs0" || len(verbs.Devices[0].GIDs) != 2 {
			t.Fatalf("%s: wrong verbs in the journal: %+v", mode, verbs)
		}
		gid := verbs.Devices[0].GIDs[0]
		if gid.Type != cnichain.GIDRoCEv2 || gid.Interface != "net1" || gid.Address != "10.0.0.2" || gid.Port != 1 {
			t.Errorf("%s: wrong preferred GID: %+v", mode, gid)
		}
		if clock.waited != 14*time.Millisecond {
			t.Errorf("%s: waited %s, want 14ms", mode, clock.waited)
		}
	}
}

// Pods can run without GIDs: neither a GID that never appears nor a GID table that cannot be read blocks a pod.
func TestAttachmentWithoutGIDs(t *testing.T) {
	for name, test := range map[string]struct {
		spoil   func(*cnitest.Node)
		unknown string
		waits   bool
	}{
		"never":      {func(n *cnitest.Node) { n.DelayGIDs(1000) }, "no GID for 10.0.0.2 on net1", true},
		"unreadable": {func(n *cnitest.Node) { n.Fail("gids", errors.New("no file")) }, "no file", false},
		"iWARP": {func(n *cnitest.Node) { n.SetRDMAProtocol("mlx5_0", cnichain.RDMAProtocolIWARP) },
			"mlx5_0 uses iWARP", false},
		"unknown addresses": {func(n *cnitest.Node) { n.Fail("addresses", errors.New("gone")) }, "gone", false},
	} {
		t.Run(name, func(t *testing.T) {
			w, made, clock := withGIDs(t, cnichain.RDMAExclusive)
			test.spoil(w.node)
			w.must(w.add(made))
			if verbs := made.Steps[0].Verbs; verbs == nil || !strings.Contains(verbs.Unknown, test.unknown) {
				t.Errorf("unexpected verbs: %+v", verbs)
			}
			if waits := clock.waited > 0; waits != test.waits || clock.waited > 2*time.Second {
				t.Errorf("unexpected wait of %s", clock.waited)
			}
			w.must(w.del(made))
			w.expect(cleanNode)
		})
	}
}

// A driver that is stopping does not wait for GIDs. The attachment is still complete.
func TestWaitForGIDsEndsWithTheDriver(t *testing.T) {
	w, made := withRDMA(t, cnichain.RDMAExclusive, rdmaStep)
	w.node.DelayGIDs(1000)
	ctx, cancel := context.WithCancel(context.Background())
	added := make(chan error, 1)
	go func() { added <- w.executor.Add(ctx, made, "/run/netns/1", "node") }()
	for !w.clock.HasWaiters() { // the clock does not advance
	}
	cancel()
	w.must(<-added)
	if made.Phase != executor.PhaseReady || made.Steps[0].Verbs.Unknown == "" {
		t.Errorf("attachment is %s with wrong verbs %+v", made.Phase, made.Steps[0].Verbs)
	}
}

// An application can add any number of addresses, and none of them need have a GID.
func TestReasonHasAnEnd(t *testing.T) {
	w, made, _ := withGIDs(t, cnichain.RDMAExclusive)
	w.must(w.add(made))
	steps := made.Steps
	for i := range 10 {
		name := fmt.Sprintf("extra%d", i)
		w.node.AddPodLink(pin, name)
		links, err := w.node.Links(pin)
		w.must(err)
		position := slices.IndexFunc(links, func(link cnichain.Link) bool { return link.Name == name })
		steps = append(steps, executor.StepRecord{Step: cnichain.PlanStep{DependsOn: []int{0}}, Link: &links[position]})
	}
	w.node.DelayGIDs(1)
	if verbs := w.executor.VerbsReader().Read(pin, steps, 0); verbs.Unknown != "the kernel has no GID for 10.0.0.2 on "+
		"extra0, 10.0.0.2 on extra1, 10.0.0.2 on extra2, 10.0.0.2 on extra3, and 7 more" {
		t.Errorf("wrong Unknown: %q", verbs.Unknown)
	}
}

// The reported list of GIDs fits into a claim's status, and the result states that the list is incomplete.
func TestListOfGIDsHasAnEnd(t *testing.T) {
	w, made, _ := withGIDs(t, cnichain.RDMAExclusive)
	w.must(w.add(made))
	steps := made.Steps
	for i := range 40 {
		w.node.AddPodLink(pin, fmt.Sprintf("extra%d", i))
		links, err := w.node.Links(pin)
		w.must(err)
		for j := range links {
			if links[j].Name == fmt.Sprintf("extra%d", i) {
				steps = append(steps, executor.StepRecord{Step: cnichain.PlanStep{DependsOn: []int{0}},
					Link: &links[j]})
			}
		}
	}
	verbs := w.executor.VerbsReader().Read(pin, steps, 0)
	if len(verbs.Devices[0].GIDs) != cnichain.MaxGIDs ||
		!strings.Contains(verbs.Unknown, "there are 82 GIDs, and 32 are listed") {
		t.Errorf("got %d GIDs, and Unknown = %q", len(verbs.Devices[0].GIDs), verbs.Unknown)
	}
}
