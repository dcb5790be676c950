package executor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

const (
	linkThenTune = `
- {name: link, type: host-device, selector: {cel: "true"}, config: {ipam: {type: host-local}}}
- {name: tune, type: tuning, dependOn: [link], config: {mtu: 1400, cookie: 9007199254740993, note: "{{ link.interfaceName }} of {{ pod.name }}"}}
`
	pin       = "/run/netns/dra-1"
	cleanNode = "host [up0 up1] pods [] leases []"
)

// workbench is an executor and a simulated node with two links.
type workbench struct {
	t        *testing.T
	node     *cnitest.Node
	journal  *cnitest.Journal
	clock    *testingclock.FakeClock
	executor *executor.Executor
}

func newWorkbench(t *testing.T) *workbench {
	w := &workbench{t: t, node: cnitest.NewNode("up0", "up1"), journal: &cnitest.Journal{},
		clock: testingclock.NewFakeClock(time.Unix(0, 0))}
	w.executor = executor.New(executor.Options{Exec: w.node, Host: w.node, Journal: w.journal,
		Dirs: []string{cnitest.PluginDir}, Clock: w.clock})
	return w
}

func device(step, name string) cnichain.RootDevice {
	return cnichain.RootDevice{Step: step, Device: cnichain.Device{
		Pool: "n/" + name, Name: name, Request: "r", Exclusive: true, IfName: name,
		CNIs:       []string{"device-only", "host-device", "macvlan"},
		Attributes: map[string]any{"ifName": name},
	}}
}

// plan compiles steps for a claim.
func (w *workbench) plan(claim, steps string, devices ...cnichain.RootDevice) cnichain.Plan {
	w.t.Helper()
	plan, problems := cnichain.Compile(topologyAndBinding(claim, steps, devices...))
	if len(problems) > 0 {
		w.t.Fatal(problems)
	}
	return *plan
}

func topologyAndBinding(
	claim, steps string, devices ...cnichain.RootDevice,
) (*v1alpha1.NetworkTopology, cnichain.Binding) {
	topology := &v1alpha1.NetworkTopology{}
	topology.Name = "t"
	if err := yaml.UnmarshalStrict([]byte(steps), &topology.Spec.Steps); err != nil {
		panic(err)
	}
	plugins := map[string]cnichain.Plugin{}
	for _, cniType := range cnichain.Types(topology) {
		plugins[cniType] = cnichain.Plugin{Path: cnitest.PluginDir + "/" + cniType,
			Versions: []string{"1.0.0", "1.1.0"}}
	}
	return topology, cnichain.Binding{
		Claim: cnichain.Claim{Namespace: "ns", Name: claim, UID: claim}, Node: "n", Schemas: cnichain.DefaultSchemas(),
		Plugins: plugins, Devices: devices,
	}
}

func attachment(plans ...cnichain.Plan) *executor.Attachment {
	made := executor.NewAttachment("sandbox-1", executor.Pod{Namespace: "ns", Name: "p", UID: "pod-1"}, plans)
	made.Pin = pin
	return made
}

func (w *workbench) linkThenTune() *executor.Attachment {
	return attachment(w.plan("c", linkThenTune, device("link", "up0")))
}

func (w *workbench) add(attachment *executor.Attachment) error {
	return w.executor.Add(context.Background(), attachment, podNetNS, "n")
}

// restarted returns the attachment as read from the journal after a restart.
func (w *workbench) restarted() *executor.Attachment {
	w.t.Helper()
	attachment, err := w.journal.Load("sandbox-1")
	if err != nil || attachment == nil {
		w.t.Fatalf("cannot read the record: %v", err)
	}
	return attachment
}

// expect compares the node's state and the records in the journal with the expected ones.
func (w *workbench) expect(node string, records ...string) {
	w.t.Helper()
	if got := w.node.String(); got != node {
		w.t.Errorf("node is %s\nwant    %s", got, node)
	}
	if keys := w.journal.Keys(); !slices.Equal(keys, records) {
		w.t.Errorf("the journal contains records %v, want records %v", keys, records)
	}
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error =\n%v\nwant it to contain %q", err, part)
		}
	}
}

func TestAddAndDel(t *testing.T) {
	w := newWorkbench(t)
	made := w.linkThenTune()
	if err := w.add(made); err != nil {
		t.Fatal(err)
	}
	w.expect("host [up1] pods [dra-1[net1]] leases [sandbox-1/net1]", "sandbox-1")
	if commits, notes := w.journal.Commits(), w.journal.Notes(); commits != len(made.Steps) || notes != 1 {
		t.Errorf("got %d commits and %d notes, want one commit before each step, which includes the changes of the "+
			"previous one, and a note when the attachment is ready", commits, notes)
	}
	var stdin struct{ Name, Type, Note string }
	if !strings.Contains(string(made.Steps[1].Stdin), `"cookie":9007199254740993`) {
		t.Errorf("the number format was changed: %s", made.Steps[1].Stdin)
	}
	if err := json.Unmarshal(made.Steps[1].Stdin, &stdin); err != nil || stdin.Note != "net1 of p" ||
		!strings.HasPrefix(stdin.Name, "t.tune.") || stdin.Type != "tuning" {
		t.Errorf("wrong stdin of tuning: %s, %v", made.Steps[1].Stdin, err)
	}
	// The records read after a restart are sufficient for DEL. DEL can be repeated.
	restarted, commits, notes := w.restarted(), w.journal.Commits(), w.journal.Notes()
	for i := range 2 {
		if err := w.executor.Del(context.Background(), restarted); err != nil {
			t.Fatal(err)
		}
		w.expect(cleanNode)
		if want := notes + len(made.Steps) + 1; i == 0 && w.journal.Notes() != want {
			t.Errorf("got %d notes, want %d: one before, one after each step except the last, and the deletion",
				w.journal.Notes(), want)
		}
		if w.journal.Commits() != commits {
			t.Error("DEL waited for the disk")
		}
	}
}

// Whichever step fails, the node is unchanged afterwards, and the error names the step and includes the plugin's
// message.
func TestFailureAtEveryStepLeavesNothing(t *testing.T) {
	for _, failing := range []string{"host-device ADD", "host-device ADD after", "tuning ADD", "tuning ADD after"} {
		t.Run(failing, func(t *testing.T) {
			w := newWorkbench(t)
			w.node.Fail(failing, &types.Error{Code: 100, Msg: "no such knob"})
			err := w.add(w.linkThenTune())
			wantError(t, err, "no such knob", "topology t", "CNI code 100")
			var step *executor.StepError
			if !errors.As(err, &step) || step.Type != strings.Fields(failing)[0] {
				t.Errorf("error names the wrong step: %+v", step)
			}
			w.expect(cleanNode)
		})
	}
}

func TestSuccessWithoutEffectIsAFailure(t *testing.T) {
	w := newWorkbench(t)
	w.node.Lie("host-device ADD")
	wantError(t, w.add(w.linkThenTune()), `reported success but the pod has no interface "net1"`)
	w.expect(cleanNode)
}

// podNetNS is the runtime's path to the pod's network namespace.
const podNetNS = "/proc/1/ns/net"

// A DEL after an ADD that failed because of a name collision would delete the interface that already had the name.
func TestCollisionNeverDestroysTheOther(t *testing.T) {
	w := newWorkbench(t)
	second := device("b", "up1")
	second.Device.Attributes["ifName"] = "theirs"
	made := attachment(w.plan("c", `
- {name: a, type: macvlan, selector: {cel: "true"}}
- {name: b, type: macvlan, selector: {cel: "true"}, ifName: "{{ device.ifName }}"}
`, device("a", "up0"), second))
	if _, err := w.node.Links(podNetNS); err != nil { // creates the pod
		t.Fatal(err)
	}
	w.node.AddPodLink(podNetNS, "theirs")
	wantError(t, w.add(made), `has an interface "theirs" already`)
	if calls := w.node.Calls(); slices.Contains(calls, "macvlan DEL theirs") ||
		!slices.Contains(calls, "macvlan DEL net1") {
		t.Errorf("unexpected calls: %v", calls)
	}
	w.expect(cleanNode)
}

func TestTryAgainLaterIsTriedAgain(t *testing.T) {
	w := newWorkbench(t)
	w.node.Fail("host-device ADD", &types.Error{Code: types.ErrTryAgainLater, Msg: "busy"})
	ended := make(chan error, 1)
	go func() { ended <- w.add(w.linkThenTune()) }()
	for {
		select {
		case err := <-ended:
			wantError(t, err, "busy")
			adds := slices.DeleteFunc(w.node.Calls(), func(call string) bool { return call != "host-device ADD net1" })
			if len(adds) != 4 {
				t.Errorf("got %d attempts, want 4", len(adds))
			}
			w.expect(cleanNode)
			return
		default:
			if w.clock.HasWaiters() {
				w.clock.Step(time.Second)
			}
		}
	}
}

func TestFullJournalStopsBeforeTheEffect(t *testing.T) {
	w := newWorkbench(t)
	w.journal.Fill()
	wantError(t, w.add(w.linkThenTune()), "no space left")
	if calls := w.node.Calls(); len(calls) != 0 {
		t.Errorf("unexpected calls: %v", calls)
	}
}

// After a reboot, the namespace and the virtual links are gone, but leases are still on disk.
func TestDelWithoutNamespaceReleasesAddresses(t *testing.T) {
	w := newWorkbench(t)
	if err := w.add(w.linkThenTune()); err != nil {
		t.Fatal(err)
	}
	w.node.Reboot()
	if err := w.executor.Del(context.Background(), w.restarted()); err != nil {
		t.Fatal(err)
	}
	w.expect("host [up1] pods [] leases []")
	if !slices.Contains(w.node.Calls(), "host-local DEL net1") {
		t.Errorf("unexpected calls: %v", w.node.Calls())
	}
}

func TestDeviceThatDoesNotComeHomeKeepsTheRecord(t *testing.T) {
	w := newWorkbench(t)
	w.node.Lose()
	hardware := device("link", "up0")
	hardware.Device.PCIAddress = "0000:01:00.0" // hardware always returns to the host eventually
	made := attachment(w.plan("c", linkThenTune, hardware))
	if err := w.add(made); err != nil {
		t.Fatal(err)
	}
	wantError(t, w.executor.Del(context.Background(), made), "the host has no link up0")
	w.node.AddHostLink("up0")
	if err := w.executor.Del(context.Background(), w.restarted()); err != nil {
		t.Fatal(err)
	}
	w.expect(cleanNode)
}

// If a veth is in a pod when its other end is deleted, it will never return to the host.
func TestVirtualDeviceThatWasDestroyedIsNotWaitedFor(t *testing.T) {
	w := newWorkbench(t)
	made := w.linkThenTune()
	if err := w.add(made); err != nil {
		t.Fatal(err)
	}
	w.node.DeletePodLink(pin, "net1")
	if err := w.executor.Del(context.Background(), made); err != nil {
		t.Fatal(err)
	}
	w.expect("host [up1] pods [] leases []")
}

func TestLinkThatTheApplicationRenamedComesHome(t *testing.T) {
	w := newWorkbench(t)
	made := w.linkThenTune()
	if err := w.add(made); err != nil {
		t.Fatal(err)
	}
	w.node.RenamePodLink(pin, "net1", "mine")
	if err := w.executor.Del(context.Background(), made); err != nil {
		t.Fatal(err)
	}
	w.expect(cleanNode)
}

// A released device may already belong to another claim, so it is not touched again when DEL is retried for the pod's
// other claim.
func TestReleasedDeviceIsNotTouchedAgain(t *testing.T) {
	w := newWorkbench(t)
	both := attachment(w.plan("first", linkThenTune, device("link", "up0")),
		w.plan("second", linkThenTune, device("link", "up1")))
	if err := w.add(both); err != nil {
		t.Fatal(err)
	}
	if err := w.executor.Del(context.Background(), both, "first"); err != nil {
		t.Fatal(err)
	}
	w.node.RemoveHostLink("up0") // in use by its new owner
	w.node.Fail("host-device DEL", errors.New("busy"))
	wantError(t, w.executor.Del(context.Background(), w.restarted()), "busy")
	w.node.Fail("host-device DEL", nil)
	if err := w.executor.Del(context.Background(), w.restarted()); err != nil {
		t.Fatal(err)
	}
	w.expect("host [up1] pods [] leases []")
}

// DEL is recorded before it begins, so that a crash cannot interrupt an unrecorded DEL.
func TestDelIsRecordedBeforeItBegins(t *testing.T) {
	w := newWorkbench(t)
	made := w.linkThenTune()
	if err := w.add(made); err != nil {
		t.Fatal(err)
	}
	release := w.node.Hold("tuning DEL")
	ended := make(chan error, 1)
	go func() { ended <- w.executor.Del(context.Background(), made) }()
	for !slices.Contains(w.node.Calls(), "tuning DEL net1") {
		runtime.Gosched()
	}
	if left := w.restarted(); left.Phase != executor.PhaseDetaching || left.Steps[0].Phase != executor.StepDeleting {
		t.Errorf("phase on disk = %s, phase of the step = %s", left.Phase, left.Steps[0].Phase)
	}
	release()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	w.expect(cleanNode)
}

// If one of a pod's two claims is released, the other stays attached.
func TestDelOfOneClaim(t *testing.T) {
	w := newWorkbench(t)
	both := attachment(w.plan("first", linkThenTune, device("link", "up0")),
		w.plan("second", linkThenTune, device("link", "up1")))
	if err := w.add(both); err != nil {
		t.Fatal(err)
	}
	if err := w.executor.Del(context.Background(), both, "first"); err != nil {
		t.Fatal(err)
	}
	w.expect("host [up0] pods [dra-1[net2]] leases [sandbox-1/net2]", "sandbox-1")
	if err := w.executor.Del(context.Background(), both); err != nil {
		t.Fatal(err)
	}
	w.expect(cleanNode)
}

func TestNamesAreGivenOnce(t *testing.T) {
	w := newWorkbench(t)
	plan := w.plan("c", `
- {name: a, type: macvlan, selector: {cel: "true"}}
- {name: b, type: macvlan, selector: {cel: "true"}, ifName: net1}
- {name: c, type: tuning, dependOn: [a]}
`, device("a", "up0"), device("b", "up1"))
	made := attachment(plan)
	if err := executor.AssignNames(made, []cnichain.Link{{Name: "eth0", AltNames: []string{"net2"}}}); err != nil {
		t.Fatal(err)
	}
	names := []string{made.Steps[0].IfName, made.Steps[1].IfName, made.Steps[2].IfName}
	if want := []string{"net3", "net1", "net3"}; !slices.Equal(names, want) {
		t.Errorf("names = %v, want %v", names, want)
	}
	wantError(t, executor.AssignNames(attachment(plan), []cnichain.Link{{Name: "net1"}}), `step "b" (macvlan)`,
		"the pod's own network")
}

// If the pod selects a network by annotation, the network's interface gets the name in the annotation, and other
// interfaces are named so as not to clash with it. A pod that does not select the network is rejected.
func TestNamesAreThoseOfThePodsAnnotation(t *testing.T) {
	w := newWorkbench(t)
	plan := w.plan("c", `
- {name: a, type: macvlan, selector: {cel: "true"}}
- {name: b, type: macvlan, selector: {cel: "true"}}
- {name: c, type: tuning, dependOn: [b]}
`, device("a", "up0"), device("b", "up1"))
	plan.Steps[1].PodNetwork = &cnichain.PodNetwork{Annotation: "example.org/networks", Name: "ns/n",
		NamesInterface: true}
	name := func(annotation string, taken ...cnichain.Link) ([]string, error) {
		made := attachment(plan)
		made.Pod = executor.Pod{Namespace: "ns", Name: "p",
			Annotations: map[string]string{"example.org/networks": annotation}}
		err := executor.AssignNames(made, taken)
		return []string{made.Steps[0].IfName, made.Steps[1].IfName, made.Steps[2].IfName}, err
	}
	for annotation, want := range map[string][]string{
		"n": {"net2", "net1", "net1"}, "other,ns/n": {"net1", "net2", "net2"}, "n@fast0": {"net1", "fast0", "fast0"},
	} {
		if names, err := name(annotation); err != nil || !slices.Equal(names, want) {
			t.Errorf("%s: names = %v, want %v (%v)", annotation, names, want, err)
		}
	}
	_, err := name("other")
	wantError(t, err, `cannot attach step "b" (macvlan) of topology t`, "it selects ns/other@net1", "add ns/n")
	_, err = name("n", cnichain.Link{Name: "net1"})
	wantError(t, err, "the pod's own network already has that name", "change the pod's annotation example.org/networks")
	for _, bad := range []string{"all", "`x`", "{{a}}", "-x"} {
		_, err = name(`[{"name": "n", "interface": "` + bad + `"}]`)
		wantError(t, err, "is not a valid interface name", "change the pod's annotation example.org/networks")
	}
}

// This example compiles a topology for a claim, attaches it to a pod and detaches it.
func ExampleExecutor() {
	topology := &v1alpha1.NetworkTopology{}
	topology.Name = "lan"
	_ = yaml.Unmarshal([]byte(`[{name: uplink, type: macvlan, selector: {cel: "true"}}]`), &topology.Spec.Steps)
	node := cnitest.NewNode("eth1")
	runner := executor.New(executor.Options{Exec: node, Host: node, Journal: &cnitest.Journal{},
		Dirs: []string{"/opt/cni/bin"}})
	plan, problems := cnichain.Compile(topology, cnichain.Binding{
		Claim:   cnichain.Claim{Namespace: "default", Name: "net", UID: "1"},
		Schemas: cnichain.DefaultSchemas(),
		Plugins: map[string]cnichain.Plugin{"macvlan": {Path: "/opt/cni/bin/macvlan", Versions: []string{"1.1.0"}}},
		Devices: []cnichain.RootDevice{{Step: "uplink",
			Device: cnichain.Device{Name: "eth1", IfName: "eth1", CNIs: []string{"macvlan"}}}},
	})
	fmt.Println("problems:", problems)
	pod := executor.NewAttachment("sandbox", executor.Pod{Namespace: "default", Name: "web"}, []cnichain.Plan{*plan})
	pod.Pin = "/var/run/netns/dra-sandbox"
	fmt.Println(runner.Add(context.Background(), pod, "/proc/1234/ns/net", "node-1"), node)
	fmt.Println(runner.Del(context.Background(), pod), node)
	// Output:
	// problems: []
	// <nil> host [eth1] pods [dra-sandbox[net1]] leases []
	// <nil> host [eth1] pods [] leases []
}

// A step that binds a device to a driver provides device nodes to the pod, and is rolled back after any failure.
func TestDriverOfApplications(t *testing.T) {
	const steps = `
- {name: link, type: host-device, selector: {cel: "true"}, driver: vfio-pci}
- {name: other, type: macvlan, selector: {cel: "true"}}
`
	make := func(t *testing.T) (*workbench, *executor.Attachment) {
		w := newWorkbench(t)
		hardware := device("link", "up0")
		hardware.Device.PCIAddress = "0000:01:00.0"
		plan := w.plan("c", steps, hardware, device("other", "up1"))
		// Call DEL even though there is no interface.
		plan.Steps[0].Quirks.DelFailsWithoutInterface = false
		return w, attachment(plan)
	}
	t.Run("attached", func(t *testing.T) {
		w, made := make(t)
		w.must(w.add(made))
		w.expect("host [up1] pods [dra-1[net2]] leases []", "sandbox-1")
		if nodes, want := w.restarted().Steps[0].DeviceNodes, []string{"/dev/vfio/0000:01:00.0",
			"/dev/vfio/vfio"}; !slices.Equal(nodes, want) {
			t.Errorf("device nodes = %q, want %q", nodes, want)
		}
		w.must(w.executor.Check(context.Background(), made))
		w.must(w.del(made))
		w.expect(cleanNode)
	})
	for name, call := range map[string]string{"not bound": "bind", "plugin fails": "host-device ADD",
		"later step fails": "macvlan ADD"} {
		t.Run(name, func(t *testing.T) {
			w, made := make(t)
			w.node.Fail(call, errors.New("no"))
			wantError(t, w.add(made), "no")
			w.expect(cleanNode)
		})
	}
	for name, test := range map[string]struct {
		kept, want string
	}{
		"address as the claim wants it": {kept: "02:00:00:00:00:05"},
		"another address": {kept: "02:00:00:00:00:06",
			want: "MAC address 02:00:00:00:00:06, but the claim requests 02:00:00:00:00:05"},
		"unknown address": {want: "no physical function"},
	} {
		t.Run(name, func(t *testing.T) {
			w, made := make(t)
			made.Steps[0].Step.MAC = "02:00:00:00:00:05"
			if test.kept != "" {
				w.node.Keep("0000:01:00.0", cnichain.VFConfig{MAC: test.kept})
			}
			err := w.add(made)
			if test.want == "" {
				w.must(err)
				return
			}
			wantError(t, err, test.want)
			w.expect(cleanNode)
		})
	}
	t.Run("plugin's DEL fails", func(t *testing.T) {
		w, made := make(t)
		w.must(w.add(made))
		w.node.Fail("host-device DEL", errors.New("no such device"))
		w.node.RemoveHardware("0000:01:00.0", pin, "")
		w.must(w.del(made))
	})
}

// The runtime stops the sandbox and creates another namespace at the same path before the namespace is pinned.
func TestNamespaceThatIsReplacedBeforeItIsPinned(t *testing.T) {
	w := newWorkbench(t)
	w.executor.Host = replacingHost{w.node}
	wantError(t, w.add(w.linkThenTune()), "now refers to another network namespace; the sandbox has ended")
	if calls := w.node.Calls(); len(calls) > 0 {
		t.Errorf("plugins were called: %v", calls)
	}
	w.expect(cleanNode)
}

type replacingHost struct{ *cnitest.Node }

func (h replacingHost) Pin(netns, pin string) error { return h.Node.Pin(netns+"-another", pin) }

func TestKernelHint(t *testing.T) {
	failed := func(text string) error {
		return &executor.StepError{Step: "port", Type: "bridge", Command: "ADD", Err: errors.New(text)}
	}
	const want = "the kernel of node n or the device's driver may lack a feature that bridge needs: use a kernel " +
		"that is built with CONFIG_BRIDGE_VLAN_FILTERING, which VLANs on a bridge need, or remove the setting that " +
		"the device does not support"
	for cniType, remedy := range map[string]string{
		"vlan": cnichain.InstallLinkType("vlan"),
		"mine": "load the kernel module of the feature, use a kernel that is built with it",
	} {
		err := &executor.StepError{Type: cniType, Err: errors.New("operation not supported")}
		if got := executor.KernelHint(err, "n"); !strings.Contains(got, "needs: "+remedy+", or remove") {
			t.Errorf("hint for %s lacks the remedy: %s", cniType, got)
		}
	}
	unsupported := failed("failed to setup vlan tag on interface \"veth1\": operation not supported")
	for _, err := range []error{unsupported, fmt.Errorf("attempt 2: %w", unsupported),
		&executor.UndoError{Cause: unsupported, Undo: errors.New("busy")}} {
		if got := executor.KernelHint(err, "n"); got != want {
			t.Errorf("%v: got hint\n%s\nwant\n%s", err, got, want)
		}
	}
	for _, err := range []error{nil, failed("no addresses left"), errors.New("operation not supported")} {
		if got := executor.KernelHint(err, "n"); got != "" {
			t.Errorf("unexpected hint for %v: %s", err, got)
		}
	}
}
