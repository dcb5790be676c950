package executor_test

import (
	"testing"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

const (
	// withLeases is a chain of which two plugins leave addresses on the disk.
	withLeases = `
- {name: a, type: host-device, selector: {cel: "true"}, config: {ipam: {type: host-local}}}
- {name: b, type: macvlan, selector: {cel: "true"}, config: {ipam: {type: host-local}}}
- {name: c, type: tuning, dependOn: [a, b], ifName: net1}
`
	// withoutLeases leaves nothing there.
	withoutLeases = `
- {name: a, type: host-device, selector: {cel: "true"}}
- {name: b, type: macvlan, selector: {cel: "true"}}
- {name: c, type: tuning, dependOn: [a, b], ifName: net1}
`
)

// A machine may lose its power at any write to the journal: with the namespaces it loses what was only noted, since the
// last save or since notes were flushed in between, and keeps what plugins have written to its disk. The driver of the
// next boot finds all of that, also where the devices have gone to another sandbox in between.
func TestMachineLosesItsPower(t *testing.T) {
	for name, test := range map[string]struct {
		chain    string
		volatile []string
		schemas  bool // say of all steps that they leave no files
		leaks    bool
	}{
		"plugins write to the disk": {chain: withLeases},
		"one of them does not":      {chain: withLeases, volatile: []string{"tuning"}},
		"no plugin does": {chain: withoutLeases,
			volatile: []string{"host-device", "macvlan", "tuning"}},
		"a plugin does that says that it does not": {chain: withLeases, volatile: []string{"host-device"},
			leaks: true},
		"schemas say so of plugins that do not": {chain: withoutLeases, schemas: true},
		"schemas say so of plugins that do":     {chain: withLeases, schemas: true, leaks: true},
	} {
		t.Run(name, func(t *testing.T) {
			leaked, writes := false, 0
			for died := true; died; writes++ {
				for flushed := range writes + 1 {
					w := newWorkbench(t)
					for _, plugin := range test.volatile {
						w.node.Volatile(plugin)
					}
					w.executor = executor.New(executor.Options{Exec: w.node, Host: w.node, Clock: w.clock,
						Journal: &flushingJournal{dyingJournal{Journal: w.journal, left: writes}, w.journal, flushed},
						Dirs:    []string{cnitest.PluginDir}})
					plan := w.plan("c", test.chain, device("a", "up0"), device("b", "up1"))
					for i := range plan.Steps {
						plan.Steps[i].LeavesNoFiles = plan.Steps[i].LeavesNoFiles || test.schemas
					}
					died = w.twoSandboxes(plan)
					w.losePower()
					if state := w.node.String(); state != cleanNode || len(w.journal.Keys()) > 0 {
						leaked = true
						if !test.leaks {
							t.Errorf("the power is lost at write %d, notes are flushed before write %d: %s, records %v",
								writes, flushed, state, w.journal.Keys())
						}
					}
				}
			}
			if leaked != test.leaks || writes < 12 {
				t.Errorf("of %d machines, something is lost: %v, want %v", writes, leaked, test.leaks)
			}
		})
	}
}

// flushingJournal flushes notes once, before a write.
type flushingJournal struct {
	dyingJournal
	notes *cnitest.Journal
	until int
}

func (j *flushingJournal) Save(attachment *executor.Attachment) error {
	j.flush()
	return j.dyingJournal.Save(attachment)
}

func (j *flushingJournal) Note(attachment *executor.Attachment) error {
	j.flush()
	return j.dyingJournal.Note(attachment)
}

func (j *flushingJournal) Delete(sandbox string) error {
	j.flush()
	return j.dyingJournal.Delete(sandbox)
}

func (j *flushingJournal) flush() {
	if j.until == 0 {
		j.notes.Flush()
	}
	j.until--
}

// twoSandboxes attaches and detaches a sandbox, and attaches another with the same devices, until the driver dies.
func (w *workbench) twoSandboxes(plan cnichain.Plan) (died bool) {
	w.t.Helper()
	defer func() { died = recover() != nil }()
	first := attachment(plan)
	w.must(w.add(first))
	w.must(w.del(first))
	w.node.AddNamespace("/run/netns/other")
	second := w.onOtherSandbox(plan)
	w.must(w.executor.Add(w.t.Context(), second, "/run/netns/other", "n"))
	return false
}

// losePower boots the machine again, with another driver on what its disk has.
func (w *workbench) losePower() {
	w.t.Helper()
	w.journal.LosePower()
	w.node.Reboot()
	w.node.AddHostLink("up0") // hardware is there again
	w.node.AddHostLink("up1")
	found := []*executor.Attachment{}
	for _, key := range w.journal.Keys() {
		attachment, err := w.journal.Load(key)
		w.must(err)
		found = append(found, attachment)
	}
	w.executor = executor.New(executor.Options{Exec: w.node, Host: w.node, Clock: w.clock, Journal: w.journal,
		Dirs: []string{cnitest.PluginDir}})
	w.restart(found...)
	for _, attachment := range found {
		w.must(w.del(attachment))
	}
}
