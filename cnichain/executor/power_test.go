package executor_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

const (
	// withLeases is a chain with two plugins that store their leases on disk.
	withLeases = `
- {name: a, type: host-device, selector: {cel: "true"}, config: {ipam: {type: host-local}}}
- {name: b, type: macvlan, selector: {cel: "true"}, config: {ipam: {type: host-local}}}
- {name: c, type: tuning, dependOn: [a, b], ifName: net1}
`
	// withSharedLeases is a chain with three plugins that store their leases on disk. Two of them use shared devices,
	// so they are announced together with the first.
	withSharedLeases = `
- {name: a, type: host-device, selector: {cel: "true"}, config: {ipam: {type: host-local}}}
- {name: b, type: macvlan, selector: {cel: "true"}, config: {ipam: {type: host-local}}}
- {name: d, type: macvlan, selector: {cel: "true"}, config: {ipam: {type: host-local}}}
- {name: c, type: tuning, dependOn: [a, b, d], ifName: net1}
`
	// withoutLeases is a chain whose plugins store nothing on disk.
	withoutLeases = `
- {name: a, type: host-device, selector: {cel: "true"}}
- {name: b, type: macvlan, selector: {cel: "true"}}
- {name: c, type: tuning, dependOn: [a, b], ifName: net1}
`
)

// A machine may lose power during any write to the journal. The namespaces and all notes since the last save or flush
// are lost, but the files written by plugins remain. After the next boot, the driver cleans up everything, even if the
// devices were assigned to another sandbox before the power loss.
func TestMachineLosesItsPower(t *testing.T) {
	t.Parallel() // run concurrently with tests that wait
	for name, test := range map[string]struct {
		chain    string
		volatile []string
		schemas  bool // declare that no step leaves files
		leaks    bool
	}{
		"plugins write to the disk": {chain: withLeases},
		"one of them does not":      {chain: withLeases, volatile: []string{"tuning"}},
		"several are announced":     {chain: withSharedLeases, volatile: []string{"tuning"}},
		"and steps that declare that they do not": {chain: withSharedLeases, volatile: []string{"macvlan", "tuning"},
			leaks: true},
		"no plugin does": {chain: withoutLeases,
			volatile: []string{"host-device", "macvlan", "tuning"}},
		"a plugin does that declares that it does not": {chain: withLeases, volatile: []string{"host-device"},
			leaks: true},
		"schemas say so of plugins that do not": {chain: withoutLeases, schemas: true},
		"schemas say so of plugins that do":     {chain: withLeases, schemas: true, leaks: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
					plan := w.plan("c", test.chain, devicesOf(test.chain)...)
					for i := range plan.Steps {
						plan.Steps[i].LeavesNoFiles = plan.Steps[i].LeavesNoFiles || test.schemas
					}
					died = w.twoSandboxes(plan)
					w.losePower()
					if state := w.node.String(); state != cleanNode || len(w.journal.Keys()) > 0 {
						leaked = true
						if !test.leaks {
							t.Errorf("power lost at write %d, notes flushed before write %d: %s, records %v",
								writes, flushed, state, w.journal.Keys())
						}
					}
				}
			}
			if leaked != test.leaks || writes < 12 {
				t.Errorf("after %d power losses, leaked = %v, want %v", writes, leaked, test.leaks)
			}
		})
	}
}

// devicesOf returns the devices for a chain: one for each of its links, or one exclusive and one shared device.
func devicesOf(chain string) []cnichain.RootDevice {
	if chain != withSharedLeases {
		return []cnichain.RootDevice{device("a", "up0"), device("b", "up1")}
	}
	return []cnichain.RootDevice{device("a", "up0"), shared("b", "up1"), shared("d", "up1")}
}

func shared(step, name string) cnichain.RootDevice {
	root := device(step, name)
	root.Device.Exclusive = false
	return root
}

// A shared link may disappear between the preparation of its claim and the start of the pod. The plugin reports only
// that it cannot find a link.
func TestSharedDeviceThatIsGone(t *testing.T) {
	w := newWorkbench(t)
	made := attachment(w.plan("c", withoutLeases, device("a", "up0"), shared("b", "up1")))
	w.node.Fail("macvlan ADD", errors.New("Link not found"))
	err := w.add(made)
	wantError(t, err, `step "b" (macvlan)`, "Link not found")
	if strings.Contains(err.Error(), "the host has no link") {
		t.Errorf("the device exists, but the error says that it does not: %v", err)
	}
	w.node.RemoveHostLink("up1")
	again := attachment(w.plan("c", withoutLeases, device("a", "up0"), shared("b", "up1")))
	wantError(t, w.add(again), `step "b" (macvlan)`, "Link not found", "the host has no link up1",
		"delete the pod and its claim")
}

// The first commit also records the steps that follow. Whether they count as started depends on how the driver stopped:
// after a power loss, they may have been started even though the corresponding notes are lost; if the driver was
// killed, the notes are complete.
func TestAnnouncedSteps(t *testing.T) {
	const chain = `
- {name: a, type: macvlan, selector: {cel: "true"}, config: {ipam: {type: host-local}}}
- {name: b, type: macvlan, selector: {cel: "true"}, config: {ipam: {type: host-local}}}
- name: c
  type: vlan
  dependOn: [b]
  ifName: net3
  config: {master: net2, vlanId: 5, linkInContainer: true, ipam: {type: host-local}}
`
	attach := func(t *testing.T, writes int) (w *workbench) {
		w = newWorkbench(t)
		w.executor = executor.New(executor.Options{Exec: w.node, Host: w.node, Clock: w.clock,
			Journal: &dyingJournal{Journal: w.journal, left: writes}, Dirs: []string{cnitest.PluginDir}})
		made := attachment(w.plan("c", chain, shared("a", "up0"), shared("b", "up1")))
		defer func() { _ = recover() }()
		w.must(w.add(made))
		return w
	}
	w := attach(t, 1)
	made := attachment(w.plan("c", withSharedLeases, devicesOf(withSharedLeases)...))
	made.Steps[0], made.Steps[1] = made.Steps[1], made.Steps[0] // the shared device comes first
	made.Steps[2].Step.Device = made.Steps[1].Step.Device       // and the last device is also exclusive
	w.executor = executor.New(executor.Options{Exec: w.node, Host: w.node, Clock: w.clock,
		Journal: &dyingJournal{Journal: w.journal, left: 1}, Dirs: []string{cnitest.PluginDir}})
	func() { defer func() { _ = recover() }(); w.must(w.add(made)) }()
	for i, record := range w.restarted().Steps {
		if record.Announced {
			t.Errorf("step %d was announced, although it or one of its dependencies has an exclusive device", i)
		}
	}
	w = attach(t, 100)
	if w.journal.Commits() != 2 {
		t.Errorf("got %d commits, want one for a and b, and one for c, whose configuration depends on b",
			w.journal.Commits())
	}
	for _, writes := range []int{1, 2, 3} {
		for _, powerless := range []bool{false, true} {
			w, want := attach(t, writes), min(writes, 3)
			if powerless {
				w.journal.LosePower()
				w.node.Reboot()
				want = max(want, 2) // both are announced
			}
			found := w.restarted()
			w.node.ForgetCalls()
			w.executor = executor.New(executor.Options{Exec: w.node, Host: w.node, Clock: w.clock, Journal: w.journal,
				Dirs: []string{cnitest.PluginDir}})
			w.restart(found)
			w.must(w.del(found))
			deleted := slices.DeleteFunc(w.node.Calls(), func(call string) bool {
				return strings.HasPrefix(call, "host-local") // also called for steps without a namespace
			})
			if len(deleted) != want {
				t.Errorf("killed at write %d, power loss %v: calls = %v, want DEL of %d steps", writes, powerless,
					deleted, want)
			}
			w.expect(cleanNode)
		}
	}
}

// flushingJournal flushes its notes exactly once, before a given write.
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

// twoSandboxes attaches and detaches a sandbox, then attaches another one with the same devices, and stops if the
// driver dies.
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

// losePower reboots the machine and starts another driver with the data left on disk.
func (w *workbench) losePower() {
	w.t.Helper()
	w.journal.LosePower()
	w.node.Reboot()
	w.node.AddHostLink("up0") // the hardware still exists
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
