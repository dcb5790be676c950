package cnichain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
)

// bench is one executor on one fake node.
type workbench struct {
	node     *fakeNode
	journal  *fakeJournal
	executor *Executor
}

func newWorkbench(hostLinks ...string) *workbench {
	node, journal := newFakeNode(hostLinks...), &fakeJournal{}
	clock := testingclock.NewFakeClock(time.Unix(0, 0))
	return &workbench{node: node, journal: journal, executor: NewExecutor(Options{Exec: node, Host: node, Journal: journal, Dirs: []string{"/opt/cni/bin"}, Clock: clock})}
}

func (w *workbench) attachment(t *testing.T, steps string, devices ...RootDevice) *Attachment {
	t.Helper()
	plan, problems := Compile(topology(t, steps), Binding{
		Claim: Claim{Namespace: "ns", Name: "c", UID: "claim-1"}, Node: "n", Schemas: DefaultSchemas(),
		Plugins: plugins("host-device", "macvlan", "tuning", "host-local"), Devices: devices,
	})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	attachment := NewAttachment("sandbox-1", Pod{Namespace: "ns", Name: "p", UID: "pod-1"}, []Plan{*plan})
	attachment.Pin = "/run/netns/dra-1"
	return attachment
}

const cleanNode = "host [up0 up1] pod [eth0] leases [] pins []"

func TestAddAndDel(t *testing.T) {
	w := newWorkbench("up0", "up1")
	attachment := w.attachment(t, linkThenTune, RootDevice{Step: "link", Device: deviceNamed("up0")})
	if err := w.executor.Add(context.Background(), attachment, "/proc/1/ns/net", "n"); err != nil {
		t.Fatal(err)
	}
	if got, want := w.node.String(), "host [up1] pod [eth0 net1] leases [net1] pins [/run/netns/dra-1]"; got != want {
		t.Errorf("after ADD: %s\nwant       %s", got, want)
	}
	if want := 2*len(attachment.Steps) + 2; w.journal.commits != want {
		t.Errorf("%d journal commits, want %d: two for each step, one before and one after", w.journal.commits, want)
	}
	var stdin struct{ Name, Type, Device, Note string }
	if err := json.Unmarshal(attachment.Steps[1].Stdin, &stdin); err != nil || stdin.Note != "net1 of p" || stdin.Name != "t.tune" || stdin.Type != "tuning" {
		t.Errorf("stdin of tuning is %s, %v", attachment.Steps[1].Stdin, err)
	}
	// What a restart reads back is enough for DEL, and DEL may be repeated.
	for range 2 {
		if restarted := w.journal.load("sandbox-1"); restarted != nil {
			attachment = restarted
		}
		if err := w.executor.Del(context.Background(), attachment); err != nil {
			t.Fatal(err)
		}
		if got := w.node.String(); got != cleanNode {
			t.Errorf("after DEL: %s", got)
		}
	}
	if len(w.journal.records) != 0 {
		t.Errorf("the journal still has %v", sortedKeys(w.journal.records))
	}
}

// A failure anywhere leaves the node as it was, and says which step failed and what the plugin said.
func TestFailureAtEveryStepLeavesNothing(t *testing.T) {
	for _, failing := range []string{"host-device ADD", "host-device ADD after", "tuning ADD", "tuning ADD after"} {
		t.Run(failing, func(t *testing.T) {
			w := newWorkbench("up0", "up1")
			w.node.fail[failing] = cniError("no such knob")
			err := w.executor.Add(context.Background(), w.attachment(t, linkThenTune, RootDevice{Step: "link", Device: deviceNamed("up0")}), "ns", "n")
			var step *StepError
			if !errors.As(err, &step) || step.Type != strings.Fields(failing)[0] || !contains(err.Error(), "no such knob", "topology t", "CNI code 100") {
				t.Errorf("error is %v", err)
			}
			if got := w.node.String(); got != cleanNode || len(w.journal.records) != 0 {
				t.Errorf("left %s and records %v", got, sortedKeys(w.journal.records))
			}
		})
	}
}

func TestSuccessWithoutEffectIsAFailure(t *testing.T) {
	w := newWorkbench("up0", "up1")
	w.node.lies["host-device"] = true
	err := w.executor.Add(context.Background(), w.attachment(t, linkThenTune, RootDevice{Step: "link", Device: deviceNamed("up0")}), "ns", "n")
	if err == nil || !contains(err.Error(), `reported success but the pod has no interface "net1"`) || w.node.String() != cleanNode {
		t.Errorf("error %v, node %s", err, w.node)
	}
}

// A DEL after an ADD that failed on a name that is taken would delete the other's interface.
func TestCollisionNeverDestroysTheOther(t *testing.T) {
	const twoSteps = `
- {name: a, type: macvlan, selector: {cel: "true"}}
- {name: b, type: macvlan, selector: {cel: "true"}, ifName: "{{ device.ifName }}"}
`
	w := newWorkbench("up0", "up1")
	w.node.pod["theirs"] = Link{Name: "theirs", Index: 7}
	device := deviceNamed("up1")
	device.Attributes["ifName"] = "theirs"
	err := w.executor.Add(context.Background(), w.attachment(t, twoSteps, RootDevice{Step: "a", Device: deviceNamed("up0")}, RootDevice{Step: "b", Device: device}), "ns", "n")
	if err == nil || !contains(err.Error(), `has an interface "theirs" already`) {
		t.Errorf("error is %v", err)
	}
	if got, want := w.node.String(), "host [up0 up1] pod [eth0 theirs] leases [] pins []"; got != want {
		t.Errorf("node is %s, want %s", got, want)
	}
}

func TestTryAgainLaterIsTriedAgain(t *testing.T) {
	w := newWorkbench("up0", "up1")
	w.node.fail["host-device ADD"] = &types.Error{Code: types.ErrTryAgainLater, Msg: "busy"}
	attachment := w.attachment(t, linkThenTune, RootDevice{Step: "link", Device: deviceNamed("up0")})
	clock := w.executor.Clock.(*testingclock.FakeClock)
	ctx, done := context.WithCancel(context.Background())
	defer done()
	go func() {
		for ctx.Err() == nil {
			if clock.HasWaiters() {
				clock.Step(time.Second)
			}
		}
	}()
	err := w.executor.Add(ctx, attachment, "ns", "n")
	adds := slices.DeleteFunc(slices.Clone(w.node.calls), func(call string) bool { return call != "host-device ADD net1" })
	if err == nil || len(adds) != 4 {
		t.Errorf("error %v after %d attempts, want 4", err, len(adds))
	}
}

func TestFullJournalStopsBeforeTheEffect(t *testing.T) {
	w := newWorkbench("up0", "up1")
	w.journal.full = true
	attachment := w.attachment(t, linkThenTune, RootDevice{Step: "link", Device: deviceNamed("up0")})
	if err := w.executor.Add(context.Background(), attachment, "ns", "n"); err == nil {
		t.Error("ADD went on without a journal")
	}
	if len(w.node.calls) != 0 || !strings.HasPrefix(w.node.String(), "host [up0 up1] pod [eth0] leases []") {
		t.Errorf("calls %v, node %s", w.node.calls, w.node)
	}
}

// After a reboot there is no namespace: virtual links are gone, leases are not.
func TestDelWithoutNamespaceReleasesAddresses(t *testing.T) {
	w := newWorkbench("up0", "up1")
	attachment := w.attachment(t, linkThenTune, RootDevice{Step: "link", Device: deviceNamed("up0")})
	if err := w.executor.Add(context.Background(), attachment, "ns", "n"); err != nil {
		t.Fatal(err)
	}
	clear(w.node.pins)
	w.node.pod = map[string]Link{}
	if err := w.executor.Del(context.Background(), w.journal.load("sandbox-1")); err != nil {
		t.Fatal(err)
	}
	if got, want := w.node.String(), "host [up1] pod [] leases [] pins []"; got != want {
		t.Errorf("node is %s, want %s", got, want)
	}
	if !slices.Contains(w.node.calls, "host-local DEL net1") {
		t.Errorf("calls are %v", w.node.calls)
	}
}

func TestDeviceThatDoesNotComeHomeKeepsTheRecord(t *testing.T) {
	w := newWorkbench("up0", "up1")
	w.node.lost = true
	device := deviceNamed("up0")
	device.PCIAddress = "0000:01:00.0" // hardware always comes back, sooner or later
	attachment := w.attachment(t, linkThenTune, RootDevice{Step: "link", Device: device})
	if err := w.executor.Add(context.Background(), attachment, "ns", "n"); err != nil {
		t.Fatal(err)
	}
	err := w.executor.Del(context.Background(), attachment)
	if err == nil || !contains(err.Error(), "the host has no link up0") || w.journal.load("sandbox-1") == nil {
		t.Fatalf("error %v, records %v", err, sortedKeys(w.journal.records))
	}
	w.node.host["up0"] = Link{Name: "up0"}
	if err := w.executor.Del(context.Background(), w.journal.load("sandbox-1")); err != nil || len(w.journal.records) != 0 {
		t.Errorf("error %v, records %v", err, sortedKeys(w.journal.records))
	}
}

// A veth whose other end was deleted while it was in the pod will never come home.
func TestVirtualDeviceThatWasDestroyedIsNotWaitedFor(t *testing.T) {
	w := newWorkbench("up0", "up1")
	attachment := w.attachment(t, linkThenTune, RootDevice{Step: "link", Device: deviceNamed("up0")})
	if err := w.executor.Add(context.Background(), attachment, "ns", "n"); err != nil {
		t.Fatal(err)
	}
	delete(w.node.pod, "net1")
	if err := w.executor.Del(context.Background(), attachment); err != nil {
		t.Fatal(err)
	}
	if got, want := w.node.String(), "host [up1] pod [eth0] leases [] pins []"; got != want || len(w.journal.records) != 0 {
		t.Errorf("node is %s, want %s; records %v", got, want, sortedKeys(w.journal.records))
	}
}

// Two claims of one pod: releasing one leaves the other.
func TestDelOfOneClaim(t *testing.T) {
	w := newWorkbench("up0", "up1")
	first := w.attachment(t, linkThenTune, RootDevice{Step: "link", Device: deviceNamed("up0")})
	plans := []Plan{}
	for i, name := range []string{"up0", "up1"} {
		plan, problems := Compile(topology(t, linkThenTune), Binding{
			Claim: Claim{Namespace: "ns", Name: name, UID: fmt.Sprint("claim-", i)}, Schemas: DefaultSchemas(),
			Plugins: plugins("host-device", "tuning", "host-local"), Devices: []RootDevice{{Step: "link", Device: deviceNamed(name)}}})
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		plans = append(plans, *plan)
	}
	both := NewAttachment(first.SandboxID, first.Pod, plans)
	both.Pin = first.Pin
	if err := w.executor.Add(context.Background(), both, "ns", "n"); err != nil {
		t.Fatal(err)
	}
	if err := w.executor.Del(context.Background(), both, "claim-0"); err != nil {
		t.Fatal(err)
	}
	if got, want := w.node.String(), "host [up0] pod [eth0 net2] leases [net2] pins [/run/netns/dra-1]"; got != want {
		t.Errorf("node is %s, want %s", got, want)
	}
	if err := w.executor.Del(context.Background(), both); err != nil || w.node.String() != cleanNode {
		t.Errorf("error %v, node %s", err, w.node)
	}
}

func TestNamesAreGivenOnce(t *testing.T) {
	w := newWorkbench("up0", "up1")
	const fixed = `
- {name: a, type: macvlan, selector: {cel: "true"}}
- {name: b, type: macvlan, selector: {cel: "true"}, ifName: net1}
- {name: c, type: tuning, dependOn: [a]}
`
	attachment := w.attachment(t, fixed, RootDevice{Step: "a", Device: deviceNamed("up0")}, RootDevice{Step: "b", Device: deviceNamed("up1")})
	if err := AssignNames(attachment, []Link{{Name: "eth0", AltNames: []string{"net2"}}}); err != nil {
		t.Fatal(err)
	}
	names := []string{attachment.Steps[0].IfName, attachment.Steps[1].IfName, attachment.Steps[2].IfName}
	if want := []string{"net3", "net1", "net3"}; !slices.Equal(names, want) {
		t.Errorf("names are %v, want %v", names, want)
	}
	attachment = w.attachment(t, fixed, RootDevice{Step: "a", Device: deviceNamed("up0")}, RootDevice{Step: "b", Device: deviceNamed("up1")})
	if err := AssignNames(attachment, []Link{{Name: "net1"}}); err == nil || !contains(err.Error(), `step "b" (macvlan)`, "the pod's own network") {
		t.Errorf("error is %v", err)
	}
}
