package executor_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

func (w *workbench) del(attachment *executor.Attachment, claims ...string) error {
	return w.executor.Del(context.Background(), attachment, claims...)
}

// must fails the test if err is not nil.
func (w *workbench) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// restart creates a new executor from the contents of the journal.
func (w *workbench) restart(attachments ...*executor.Attachment) {
	left := map[string]executor.Leftover{}
	for _, leftover := range w.journal.Leftovers() {
		left[leftover.Key] = leftover
	}
	loaded := map[string]*executor.Attachment{}
	for _, attachment := range attachments {
		loaded[attachment.SandboxID] = attachment
	}
	w.executor = executor.New(w.executor.Options)
	w.executor.Load(loaded, left)
}

func (w *workbench) onOtherSandbox(plan cnichain.Plan) *executor.Attachment {
	made := executor.NewAttachment("sandbox-2", executor.Pod{Namespace: "ns", Name: "q", UID: "pod-2"},
		[]cnichain.Plan{plan})
	made.Pin = "/run/netns/dra-2"
	return made
}

// After any fault in any step, whether during ADD, during DEL or at a restart in between, the host eventually returns
// to its original state.
func TestFaultsLeaveTheHostAsBefore(t *testing.T) {
	const chain = `
- {name: a, type: host-device, selector: {cel: "true"}, config: {ipam: {type: host-local}}}
- {name: b, type: macvlan, selector: {cel: "true"}, config: {ipam: {type: host-local}}}
- {name: c, type: tuning, dependOn: [a, b], ifName: net1}
`
	faults := map[string]func(*cnitest.Node, string){
		"before": func(n *cnitest.Node, call string) { n.Fail(call, errors.New("broken")) },
		"after":  func(n *cnitest.Node, call string) { n.Fail(call+" after", errors.New("broken")) },
		"lie":    func(n *cnitest.Node, call string) { n.Lie(call) },
	}
	for _, plugin := range []string{"host-device", "macvlan", "tuning"} {
		for _, command := range []string{"ADD", "DEL"} {
			for name, break_ := range faults {
				for _, restart := range []bool{false, true} {
					t.Run(strings.Join([]string{plugin, command, name, map[bool]string{true: "restart"}[restart]}, " "),
						func(t *testing.T) {
							w := newWorkbench(t)
							break_(w.node, plugin+" "+command)
							made := attachment(w.plan("c", chain, device("a", "up0"), device("b", "up1")))
							_ = w.add(made)
							for range 12 {
								if len(w.journal.Keys()) == 0 {
									break
								}
								if restart {
									made = w.restarted()
									w.restart(made)
								}
								_ = w.del(made)
							}
							w.expect(cleanNode)
							// Only state that the driver cannot see and the plugin refuses to remove may be left.
							for _, leftover := range w.journal.Leftovers() {
								if leftover.Quarantines() != nil || plugin == "host-device" {
									t.Errorf("unexpected leftover: %s", leftover.Reason)
								}
							}
							w.node.Fail(plugin+" "+command, nil)
							w.node.Fail(plugin+" "+command+" after", nil)
						})
				}
			}
		}
	}
}

// If a plugin claims to have returned the device to the host, the driver verifies this.
func TestDelThatDoesNothingIsRepaired(t *testing.T) {
	w := newWorkbench(t)
	w.node.Lie("host-device DEL")
	made := w.linkThenTune()
	w.must(w.add(made))
	w.must(w.del(made))
	w.expect(cleanNode)
	if !slices.Contains(w.node.Calls(), "host-local DEL net1") {
		t.Errorf("the address was not released: %v", w.node.Calls())
	}
}

// A plugin whose DEL always fails does not keep an exclusive device forever: after some attempts, the driver returns
// the device to the host. Other state created by the plugin may remain; it is reported, but does not block the device.
func TestDelThatAlwaysFailsIsRepaired(t *testing.T) {
	w := newWorkbench(t)
	made := attachment(w.plan("c",
		`[{name: a, type: macvlan, selector: {cel: "true"}, config: {ipam: {type: host-local}}}]`, device("a", "up0")))
	w.must(w.add(made))
	w.node.Fail("macvlan DEL", errors.New("bug"))
	for attempt := range 9 {
		wantError(t, w.del(made), "bug")
		if gone := w.node.String() == "host [up0 up1] pods [dra-1[]] leases []"; gone != (attempt >= 2) {
			t.Errorf("wrong state after attempt %d: %s", attempt, w.node)
		}
	}
	w.must(w.del(made))
	leftovers := w.executor.Leftovers()
	if len(leftovers) != 1 || leftovers[0].Quarantines() != nil || !strings.Contains(leftovers[0].Reason, "bug") {
		t.Errorf("unexpected leftovers: %+v", leftovers)
	}
	w.must(w.executor.Quarantined(leftovers[0].Step().Step.Device))
}

// A chain is not attached again in a sandbox that has leftovers, since rolling them back would also undo the new
// attempt.
func TestLeftoversAndANewAttempt(t *testing.T) {
	w := newWorkbench(t)
	shared := device("a", "up0")
	shared.Device.Exclusive = false
	plan := w.plan("c", `[{name: a, type: macvlan, selector: {cel: "true"}, config: {ipam: {type: host-local}}}]`,
		shared)
	w.executor.GiveUpAttempts = 1
	w.node.Fail("macvlan ADD after", errors.New("half done"))
	w.node.Fail("macvlan DEL", errors.New("bug"))
	wantError(t, w.add(attachment(plan)), "half done")
	leftovers := w.executor.Leftovers()
	if len(leftovers) != 1 {
		t.Fatalf("unexpected leftovers: %+v", leftovers)
	}
	w.node.Fail("macvlan ADD after", nil)
	wantError(t, w.add(attachment(plan)), "earlier attempt in this sandbox could not be rolled back")
	w.must(w.add(w.onOtherSandbox(plan))) // another pod is not affected
	w.node.Fail("macvlan DEL", nil)
	w.must(w.executor.Retry(context.Background(), leftovers[0].Key))
	w.expect("host [up0 up1] pods [dra-2[net1]] leases [sandbox-2/net1]", "sandbox-2")
	w.must(w.add(attachment(plan)))
}

// If no time was left to roll back a step, this does not count as a failure.
func TestWaitingIsNoFailure(t *testing.T) {
	w := newWorkbench(t)
	made := w.linkThenTune()
	w.must(w.add(made))
	release := w.node.Hold("tuning DEL")
	for range 12 {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := w.executor.Del(ctx, made); err == nil {
			t.Fatal("the step was rolled back although there was no time left")
		}
	}
	release()
	w.must(w.del(made))
	w.expect(cleanNode)
	if leftovers := w.executor.Leftovers(); len(leftovers) > 0 {
		t.Errorf("unexpected leftovers: %+v", leftovers)
	}
}

// If time runs out between two steps, the second one is not rolled back, and Del reports this.
func TestTimeEndsBetweenSteps(t *testing.T) {
	w := newWorkbench(t)
	made := w.linkThenTune()
	w.must(w.add(made))
	ctx, cancel := context.WithCancel(context.Background())
	release := w.node.Hold("tuning DEL")
	ended := make(chan error, 1)
	go func() { ended <- w.executor.Del(ctx, made) }()
	for !slices.Contains(w.node.Calls(), "tuning DEL net1") {
		runtime.Gosched()
	}
	w.executor.Journal = endingJournal{Journal: w.executor.Journal, end: cancel}
	release()
	wantError(t, <-ended, `no time left to undo step "link"`)
	w.must(w.del(made))
	w.expect(cleanNode)
}

// endingJournal cancels a context at its next note.
type endingJournal struct {
	executor.Journal
	end func()
}

func (j endingJournal) Note(attachment *executor.Attachment) error {
	j.end()
	return j.Journal.Note(attachment)
}

func TestWhatCannotComeHomeIsQuarantined(t *testing.T) {
	w := newWorkbench(t)
	hardware := device("link", "up0")
	hardware.Device.PCIAddress = "0000:01:00.0"
	plan := w.plan("c", linkThenTune, hardware)
	made := attachment(plan)
	w.must(w.add(made))
	w.node.Lose()
	w.node.Fail("host-device DEL", errors.New("PCI error"))
	for attempt := range 9 {
		if attempt == 5 {
			made = w.restarted() // a restart does not reset the count
			w.restart(made)
		}
		wantError(t, w.del(made), "PCI error")
		if !strings.Contains(w.node.String(), "leases [sandbox-1/net1]") {
			t.Errorf("the address was released although the pod may still use it: %s", w.node)
		}
	}
	// After the tenth attempt, the pod can terminate, and the device stays quarantined in the driver's namespace.
	w.must(w.del(made))
	w.expect("host [up1] pods [dra-1.return[net1]] leases []")
	w.restart()
	wantError(t, w.executor.Quarantined(&hardware.Device), "quarantine", "up0", "0000:01:00.0", "PCI error",
		"claim ns/c", "10 attempts")
	other := w.onOtherSandbox(plan)
	wantError(t, w.add(other), "quarantine")

	leftovers := w.executor.Leftovers()
	if len(leftovers) != 1 {
		t.Fatalf("unexpected leftovers: %v", leftovers)
	}
	if err := w.executor.Retry(context.Background(), leftovers[0].Key); err == nil {
		t.Error("Retry returned no error although the device was not on the host")
	}
	w.node.Find()
	w.node.Fail("host-device DEL", nil)
	w.node.AddHostLink("up0")
	w.must(w.executor.Retry(context.Background(), leftovers[0].Key))
	w.must(w.executor.Quarantined(&hardware.Device))
	w.must(w.add(w.onOtherSandbox(plan)))
}

// A rollback is also abandoned after five minutes, but never after a single attempt.
func TestGivingUpByTime(t *testing.T) {
	w := newWorkbench(t)
	var told []executor.Leftover
	w.executor.OnLeftover = func(leftover executor.Leftover) { told = append(told, leftover) }
	made := w.linkThenTune()
	w.must(w.add(made))
	w.node.Fail("tuning DEL", errors.New("bug"))
	w.node.Lose() // the link stays in the pod, so it matters whether tuning's DEL succeeds
	w.node.Fail("host-device DEL", errors.New("bug"))
	wantError(t, w.del(made), "bug")
	w.clock.Step(5 * time.Minute)
	w.must(w.del(made))
	if len(told) != 2 || told[0].Quarantines() != nil || told[1].Quarantines().Name != "up0" {
		t.Errorf("reported leftovers %v, want one for the plugin's state and one that quarantines up0", told)
	}
}

// A crash prevented the journal from recording that the old owner's DEL was complete. The DEL is repeated when the
// device already has a new owner.
func TestLateDelDoesNotTouchTheNewOwner(t *testing.T) {
	w := newWorkbench(t)
	plan := w.plan("c", linkThenTune, device("link", "up0"))
	old := attachment(plan)
	w.must(w.add(old))
	reloaded := w.restarted()
	w.must(w.del(old))
	owner := w.onOtherSandbox(plan)
	w.must(w.add(owner))
	const attached = "host [up1] pods [dra-2[net1]] leases [sandbox-2/net1]"
	w.expect(attached, "sandbox-2")

	current, err := w.journal.Load("sandbox-2")
	w.must(err)
	w.restart(reloaded, current)
	calls := len(w.node.Calls())
	w.must(w.del(reloaded))
	w.expect(attached, "sandbox-2")
	for _, call := range w.node.Calls()[calls:] {
		if strings.HasPrefix(call, "host-device") {
			t.Errorf("the old owner's DEL was called: %s", call)
		}
	}
	w.must(w.del(current))
	w.expect(cleanNode)
}

func TestDeviceHasOneOwner(t *testing.T) {
	w := newWorkbench(t)
	plan := w.plan("c", linkThenTune, device("link", "up0"))
	first := attachment(plan)
	w.must(w.add(first))
	wantError(t, w.add(w.onOtherSandbox(plan)), "still attached to pod ns/p (sandbox sandbox-1)")
	w.expect("host [up1] pods [dra-1[net1]] leases [sandbox-1/net1]", "sandbox-1")
	w.must(w.del(first))
	w.must(w.add(w.onOtherSandbox(plan)))
}

// A change that could not be written to the journal is written later. Otherwise, DEL would be repeated after a crash
// even though the claim was released.
func TestReleaseOfAClaimIsDurable(t *testing.T) {
	w := newWorkbench(t)
	both := attachment(w.plan("first", linkThenTune, device("link", "up0")),
		w.plan("second", linkThenTune, device("link", "up1")))
	w.must(w.add(both))
	w.journal.Fill()
	wantError(t, w.del(both, "first"), "no space left")
	w.expect("host [up0] pods [dra-1[net2]] leases [sandbox-1/net2]", "sandbox-1")
	wantError(t, w.del(both, "first"), "no space left")
	w.journal.Free()
	w.must(w.del(both, "first"))
	if phase := w.restarted().Steps[0].Phase; phase != executor.StepDeleted {
		t.Errorf("phase of the released step on disk = %s, want deleted", phase)
	}
}

// A record can be deleted even if there is no disk space for a note, so a full disk does not block pods from
// terminating.
func TestAFullDiskKeepsNoPod(t *testing.T) {
	w := newWorkbench(t)
	made := w.linkThenTune()
	w.must(w.add(made))
	w.executor.Journal = deletingJournal{w.executor.Journal}
	w.must(w.del(made))
	w.expect(cleanNode)
}

// deletingJournal only allows the deletion of records.
type deletingJournal struct{ executor.Journal }

func (deletingJournal) Note(*executor.Attachment) error { return unix.ENOSPC }

// A name does not identify an interface: the application may have renamed the interface and given its name to another
// interface.
func TestOnlyOwnInterfacesAreTouched(t *testing.T) {
	for name, test := range map[string]struct {
		app  func(*cnitest.Node)
		want string
		del  string // name that must not be passed to DEL
	}{
		"renamed": {
			app:  func(n *cnitest.Node) { n.RenamePodLink(pin, "net1", "mine") },
			want: cleanNode,
		},
		"renamed and replaced": {
			app:  func(n *cnitest.Node) { n.RenamePodLink(pin, "net1", "mine"); n.AddPodLink(pin, "net1") },
			want: "host [up0 up1] pods [dra-1[net1]] leases []", del: "net1",
		},
		"deleted and replaced": {
			app:  func(n *cnitest.Node) { n.DeletePodLink(pin, "net1"); n.AddPodLink(pin, "net1") },
			want: "host [up1] pods [dra-1[net1]] leases []", del: "net1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkbench(t)
			made := w.linkThenTune()
			w.must(w.add(made))
			test.app(w.node)
			w.node.KeepPods()
			w.must(w.del(made))
			if got := w.node.String(); got != test.want && strings.Replace(got, "dra-1[]", "", 1) != test.want {
				t.Errorf("node is %s\nwant    %s", got, test.want)
			}
		})
	}
}

// Another process created an interface with the step's name after the name was checked. DEL would delete that
// interface.
func TestCollisionDuringAdd(t *testing.T) {
	w := newWorkbench(t)
	made := attachment(w.plan("c",
		`[{name: a, type: macvlan, selector: {cel: "true"}, config: {ipam: {type: host-local}}}]`, device("a", "up0")))
	w.node.KeepPods()
	release := w.node.Hold("macvlan ADD")
	ended := make(chan error, 1)
	go func() { ended <- w.add(made) }()
	for !slices.Contains(w.node.Calls(), "macvlan ADD net1") {
		runtime.Gosched()
	}
	w.node.AddPodLink(pin, "net1")
	release()
	wantError(t, <-ended, "file exists")
	w.expect("host [up0 up1] pods [dra-1[net1]] leases []")
}

func TestCheckSaysWhatChanged(t *testing.T) {
	for name, test := range map[string]struct {
		app  func(*cnitest.Node)
		want string
	}{
		"nothing": {app: func(*cnitest.Node) {}},
		"renamed": {app: func(n *cnitest.Node) { n.RenamePodLink(pin, "net1", "mine") },
			want: `interface "net1" is called "mine" now`},
		"deleted": {app: func(n *cnitest.Node) { n.DeletePodLink(pin, "net1") }, want: `interface "net1" is gone`},
		"replaced": {app: func(n *cnitest.Node) { n.DeletePodLink(pin, "net1"); n.AddPodLink(pin, "net1") },
			want: `another interface is called "net1" now`},
		"rebooted": {app: func(n *cnitest.Node) { n.Reboot() }, want: "network namespace of pod ns/p is gone"},
		"plugin": {app: func(n *cnitest.Node) { n.Fail("tuning CHECK", errors.New("MTU is 9")) },
			want: "failed at CHECK: tuning: MTU is 9"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkbench(t)
			made := w.linkThenTune()
			w.must(w.add(made))
			before := w.journal.Commits() + w.journal.Notes()
			test.app(w.node)
			err := w.executor.Check(context.Background(), made)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("error = %v, want %q", err, test.want)
			}
			if w.journal.Commits()+w.journal.Notes() != before {
				t.Error("Check wrote to the journal")
			}
		})
	}
}

// A device that has returned to the host is available again, even while its plugin's DEL continues to fail.
func TestQuarantineEndsWhenTheDeviceIsHome(t *testing.T) {
	w := newWorkbench(t)
	hardware := device("link", "up0")
	hardware.Device.PCIAddress = "0000:01:00.0"
	plan := w.plan("c", linkThenTune, hardware)
	plan.Steps[0].Quirks.DelFailsWithoutInterface = false // like a plugin that keeps more state than addresses
	made := attachment(plan)
	w.must(w.add(made))
	w.node.Lose()
	w.node.Fail("host-device DEL", errors.New("its cache is gone"))
	for range 10 {
		_ = w.del(made)
	}
	if err := w.executor.Quarantined(&hardware.Device); err == nil {
		t.Fatal("the device was not quarantined")
	}
	w.node.Find()
	w.node.AddHostLink("up0")
	wantError(t, w.executor.Retry(context.Background(), w.executor.Leftovers()[0].Key), "its cache is gone")
	w.must(w.executor.Quarantined(&hardware.Device))
	w.restart()
	w.must(w.executor.Quarantined(&hardware.Device))
	if len(w.executor.Leftovers()) != 1 {
		t.Error("the leftover for the plugin's own state was deleted")
	}
}

// While a cleanup is retried, the device cannot be acquired, since DEL and the following operations would remove it
// from its new pod.
func TestDeviceIsHeldWhileALeftoverIsUndone(t *testing.T) {
	w := newWorkbench(t)
	hardware := device("link", "up0")
	hardware.Device.PCIAddress = "0000:01:00.0"
	plan := w.plan("c", `[{name: link, type: host-device, selector: {cel: "true"}, driver: vfio-pci}]`, hardware)
	plan.Steps[0].Quirks.DelFailsWithoutInterface = false
	made := attachment(plan)
	w.must(w.add(made))
	w.node.Fail("host-device DEL", errors.New("its cache is gone"))
	for range 10 {
		_ = w.del(made)
	}
	left := w.executor.Leftovers()
	if len(left) != 1 || left[0].Quarantines() != nil {
		t.Fatalf("unexpected leftovers: %+v", left)
	}
	release, ended := w.node.Hold("host-device DEL"), make(chan error, 1)
	w.node.ForgetCalls()
	go func() { ended <- w.executor.Retry(context.Background(), left[0].Key) }()
	for len(w.node.Calls()) == 0 {
		runtime.Gosched()
	}
	other := w.onOtherSandbox(plan)
	wantError(t, w.add(other), "is still attached to pod")
	release()
	wantError(t, <-ended, "its cache is gone")
	w.must(w.add(w.onOtherSandbox(plan)))
	w.must(w.executor.Retry(context.Background(), left[0].Key)) // the device now belongs to another claim
	if onHost, err := w.node.OnHost(hardware.Device); onHost || err != nil {
		t.Errorf("the device was taken from its new owner: %v, %v", onHost, err)
	}
}

// A restarted driver loads leftovers from pods that no longer exist. The next owner of their device must still be
// assigned a newer epoch.
func TestLeftoverLeavesTheNextOwnerAloneAfterARestart(t *testing.T) {
	w := newWorkbench(t)
	hardware := device("link", "up0")
	hardware.Device.PCIAddress = "0000:01:00.0"
	plan := w.plan("c", `[{name: link, type: host-device, selector: {cel: "true"}, driver: vfio-pci}]`, hardware)
	plan.Steps[0].Quirks.DelFailsWithoutInterface = false
	made := attachment(plan)
	w.must(w.add(made))
	w.node.Fail("host-device DEL", errors.New("its cache is gone"))
	for range 10 {
		_ = w.del(made)
	}
	w.restart()
	left := w.executor.Leftovers()
	if len(left) != 1 || left[0].Quarantines() != nil {
		t.Fatalf("unexpected leftovers: %+v", left)
	}
	w.must(w.add(w.onOtherSandbox(plan)))
	w.must(w.executor.Retry(context.Background(), left[0].Key))
	if onHost, err := w.node.OnHost(hardware.Device); onHost || err != nil {
		t.Errorf("the device was taken from its new owner: %v, %v", onHost, err)
	}
}

// An administrator changes the number of virtual functions, or removes a NIC, while a pod is using one of these
// devices. Afterwards there is no device left to return, and no DEL can succeed.
func TestHardwareThatIsRemovedWhileItIsUsed(t *testing.T) {
	for name, remove := range map[string]func(*cnitest.Node){
		"pod lives": func(n *cnitest.Node) { n.RemoveHardware("0000:01:00.0", pin, "net1") },
		"pod ended": func(n *cnitest.Node) { n.RemoveHardware("0000:01:00.0", pin, "net1"); n.Reboot() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkbench(t)
			hardware := device("link", "up0")
			hardware.Device.PCIAddress = "0000:01:00.0"
			plan := w.plan("c", linkThenTune, hardware)
			plan.Steps[0].Quirks.DelFailsWithoutInterface = false
			made := attachment(plan)
			w.must(w.add(made))
			remove(w.node)
			w.node.Fail("host-device DEL", errors.New("no such device"))
			w.must(w.del(made))
			w.expect("host [up1] pods [] leases []")
			w.must(w.executor.Quarantined(&hardware.Device))
			w.must(w.executor.VerifyReturned([]cnichain.Plan{plan}))
		})
	}
}

// The driver and its plugin are killed after DEL has returned the device to the host, but before DEL has completed. The
// next DEL would not find the device in the pod, so DEL is called without a namespace and cleans up the rest.
func TestPluginThatWasKilledInDel(t *testing.T) {
	w := newWorkbench(t)
	plan := w.plan("c", linkThenTune, device("link", "up0"))
	plan.Steps[0].Quirks.DelFailsWithoutInterface = false // like a plugin that keeps more state than addresses
	made := attachment(plan)
	w.must(w.add(made))
	w.node.DeletePodLink(pin, "net1")
	wantError(t, w.del(made), "link not found") // DEL fails until the device is on the host
	w.node.AddHostLink("up0")
	w.must(w.del(made))
	w.expect(cleanNode)
}

// The time limit applies to the whole attachment: if several steps hang one after another, the limit does not start
// over for each of them.
func TestTimeToGiveUpIsTheAttachments(t *testing.T) {
	w := newWorkbench(t)
	const step = `[{name: a, type: macvlan, selector: {cel: "true"}, config: {ipam: {type: host-local}}}]`
	first, second := device("a", "up0"), device("a", "up1")
	first.Device.Exclusive, second.Device.Exclusive = false, false
	made := attachment(w.plan("c", step, first), w.plan("d", step, second))
	w.must(w.add(made))
	w.node.Fail("macvlan DEL", errors.New("hangs"))
	wantError(t, w.executor.Del(context.Background(), made, "c"), "hangs")
	w.clock.Step(5 * time.Minute)
	w.must(w.del(made))
	if leftovers := w.executor.Leftovers(); len(leftovers) != 2 {
		t.Errorf("unexpected leftovers: %+v", leftovers)
	}
}

// After the driver has been down for a long time, or after a clock jump during a driver restart, the second failure
// must not exhaust the retries.
func TestJumpOfTheClock(t *testing.T) {
	w := newWorkbench(t)
	w.must(w.add(w.linkThenTune()))
	w.node.Fail("tuning DEL", errors.New("for a moment"))
	wantError(t, w.executor.Del(context.Background(), w.restarted()), "for a moment")
	w.clock.Step(24 * time.Hour)
	made := w.restarted()
	w.restart(made)
	wantError(t, w.executor.Del(context.Background(), made), "for a moment")
	if leftovers := w.executor.Leftovers(); len(leftovers) > 0 {
		t.Errorf("unexpected leftovers: %+v", leftovers)
	}
	w.node.Fail("tuning DEL", nil)
	w.must(w.del(made))
	w.expect(cleanNode)
}
