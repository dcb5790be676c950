package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/chainrun"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/view"
	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
)

// processVariable is the environment variable that makes the test binary run as the command.
const processVariable = "NETDRA_PROCESS"

func TestMain(m *testing.M) {
	if os.Getenv(processVariable) != "" {
		main()
	}
	os.Exit(m.Run())
}

// real is a machine with real plugins and a veth pair, uplink0 and far0.
type real struct {
	t      *testing.T
	cni    string
	dir    string
	before view.View
}

func newReal(t *testing.T) *real {
	t.Helper()
	r := &real{t: t, cni: cnitest.RealPlugins(t), dir: t.TempDir()}
	err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "uplink0"}, PeerName: "far0"})
	for _, name := range []string{"uplink0", "far0"} {
		if err == nil {
			err = setUp(name)
		}
	}
	if err == nil {
		r.before, err = view.Read("")
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func setUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

func (r *real) write(name, content string, mode os.FileMode) string {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// topology writes a topology with the given steps.
func (r *real) topology(steps string) string {
	return r.write("topology.yaml", "apiVersion: networking.dra.io/v1alpha1\nkind: NetworkTopology\nmetadata: {name: "+
		"t}\nspec:\n  steps:"+steps, 0o600)
}

// path returns the plugin directories. The directory with the test's own plugins comes first.
func (r *real) path() string { return r.dir + ":" + r.cni }

// run runs the command in this process with -o json and returns the parsed result.
func (r *real) run(arguments ...string) (code int, result chainrun.RunResult, errs string) {
	r.t.Helper()
	var out, progress bytes.Buffer
	code = run(r.t.Context(), osdeps.Linux(), printer.Streams{In: strings.NewReader(""), Out: &out, Err: &progress},
		append([]string{"chain", "run", "-o", "json", "--cni-path", r.path()}, arguments...)...)
	r.t.Logf("%v: exit status %d\n%s", arguments, code, progress.String())
	if out.Len() > 0 {
		if err := json.Unmarshal(out.Bytes(), &result); err != nil {
			r.t.Fatal(err)
		}
	}
	return code, result, progress.String()
}

// undo runs "chain undo".
func (r *real) undo() (code int, text string) {
	r.t.Helper()
	var out bytes.Buffer
	code = run(r.t.Context(), osdeps.Linux(), printer.Streams{In: strings.NewReader(""), Out: &out, Err: &out},
		"chain", "undo")
	r.t.Logf("undo: exit status %d\n%s", code, out.String())
	return code, out.String()
}

// expectAsBefore checks that the machine is in its initial state and that only the given namespaces have names.
func (r *real) expectAsBefore(namespaces ...string) {
	r.t.Helper()
	now, err := view.Read("")
	if err != nil {
		r.t.Fatal(err)
	}
	if differences := view.Differences(r.before, now); len(differences) > 0 {
		r.t.Errorf("the machine was not restored: %v", differences)
	}
	entries, err := os.ReadDir("/var/run/netns")
	if err != nil {
		r.t.Fatal(err)
	}
	names := []string{}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	if diff := cmp.Diff(append([]string{}, namespaces...), names); diff != "" {
		r.t.Errorf("wrong namespaces (-want +got):\n%s", diff)
	}
}

// summary lists the content of a namespace, omitting values that differ between runs.
func summary(v *view.View) []string {
	lines := []string{}
	if v == nil {
		return lines
	}
	for i := range v.Interfaces {
		link := &v.Interfaces[i]
		lines = append(lines, fmt.Sprintf("%s %s %d %v %v", link.Name, link.Kind, link.MTU, link.Up, link.Addresses))
	}
	slices.Sort(lines) // indexes are arbitrary
	for _, route := range v.Routes {
		lines = append(lines, route.String())
	}
	return lines
}

const macvlanThenTuning = `
  - name: uplink
    type: macvlan
    selector: {cel: "true"}
    config: {mode: bridge, ipam: {type: host-local, subnet: 10.77.0.0/24}}
  - {name: tune, type: tuning, dependOn: [uplink], config: {mtu: 1400}}
`

func TestRunOnAMachine(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	r := newReal(t)
	code, result, _ := r.run(r.topology(macvlanThenTuning), "--device", "uplink0")
	want := []string{"lo loopback 65536 true []", "net1 macvlan 1400 true [10.77.0.2/24]",
		"10.77.0.0/24 dev net1 src 10.77.0.2"}
	if diff := cmp.Diff(want, summary(result.Attached)); code != exit.OK || result.Outcome != chainrun.OutcomeUndone ||
		diff != "" {
		t.Errorf("exit status %d, %s; attached (-want +got):\n%s", code, result.Outcome, diff)
	}
	r.expectAsBefore()
}

func TestRunOfTwoInstancesOnASharedLink(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	r := newReal(t)
	code, result, _ := r.run(r.topology(macvlanThenTuning), "-d", "uplink0", "-d", "uplink0", "--shared", "uplink")
	want := []string{
		"lo loopback 65536 true []", "net1 macvlan 1400 true [10.77.0.2/24]", "net2 macvlan 1400 true [10.77.0.3/24]",
		"10.77.0.0/24 dev net1 src 10.77.0.2", "10.77.0.0/24 dev net2 src 10.77.0.3",
	}
	if diff := cmp.Diff(want, summary(result.Attached)); code != exit.OK || diff != "" {
		t.Errorf("exit status %d; attached (-want +got):\n%s", code, diff)
	}
	r.expectAsBefore()
}

func TestRunMovesALinkAndBack(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	r := newReal(t)
	cnitest.NewPod(t, "blue")
	before, err := view.Read("")
	if err != nil {
		t.Fatal(err)
	}
	r.before = before // includes the peer of the pod's eth0
	code, result, _ := r.run(r.topology(`
  - {name: link, type: host-device, selector: {cel: "true"}, config: {ipam: {type: static, addresses: [{address: 192.0.2.1/24}]}}}
`), "-d", "link=uplink0", "--netns", "blue")
	want := []string{"eth0 veth 1500 false []", "lo loopback 65536 false []", "net1 veth 1500 true [192.0.2.1/24]",
		"192.0.2.0/24 dev net1 src 192.0.2.1"}
	if diff := cmp.Diff(want, summary(result.Attached)); code != exit.OK || diff != "" {
		t.Errorf("exit status %d; attached (-want +got):\n%s", code, diff)
	}
	r.expectAsBefore("blue")
}

func TestRunThatFailsOnAMachine(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	r := newReal(t)
	code, result, errs := r.run(r.topology(macvlanThenTuning+`
  - {name: wrong, type: tuning, dependOn: [tune], config: {sysctl: {net.ipv4.conf.IFNAME.nonsense: "1"}}}
`), "--device", "uplink0")
	if code != exit.Failed || result.Outcome != chainrun.OutcomeFailed ||
		!strings.Contains(errs, `netdra: step "wrong" (tuning) of topology t failed at ADD: tuning: `) {
		t.Errorf("exit status %d, %s\n%s", code, result.Outcome, errs)
	}
	r.expectAsBefore()
}

func TestRunKeptAndUndone(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	r := newReal(t)
	code, result, _ := r.run(r.topology(macvlanThenTuning), "--device", "uplink0", "--keep")
	if code != exit.OK || result.Outcome != chainrun.OutcomeKept || result.Undo != "netdra chain undo" {
		t.Fatalf("exit status %d, result %+v, want the run kept", code, result)
	}
	kept, err := view.Read(result.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(summary(result.Attached), summary(&kept)); diff != "" {
		t.Errorf("the attachment shown and the one kept differ:\n%s", diff)
	}
	if code, _, errs := r.run(r.topology(macvlanThenTuning), "--device", "uplink0"); code != exit.Refused ||
		!strings.Contains(errs, `first run "netdra chain undo"`) {
		t.Errorf("another run: exit status %d, want a refusal\n%s", code, errs)
	}
	if code, _ := r.undo(); code != exit.OK {
		t.Errorf("undo: exit status %d", code)
	}
	r.expectAsBefore()
}
