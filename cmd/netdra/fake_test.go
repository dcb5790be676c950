package main

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/sets"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/view"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/discovery"
)

// fake simulates a machine without using the kernel. It has the links up0, up1 and br0, and the plugins of
// [cnitest.Node].
type fake struct {
	t     *testing.T
	node  *cnitest.Node
	dir   string // contains plugins, state and files
	facts discovery.Facts
	// onCall is called before a plugin call such as "tuning ADD" takes effect.
	onCall map[string]func()
	// stuck is the error returned while a plugin from an earlier process is still running.
	stuck error
	last  map[string]view.View // of namespaces whose names were removed
	// spoil modifies the view of the host namespace.
	spoil func(*view.View)
	stdin string
	state string
	// missing lists the link types that the kernel does not support.
	missing []string
	// unprivileged is true if the caller is not allowed to query link types.
	unprivileged bool
}

func newFake(t *testing.T) *fake {
	t.Helper()
	t.Setenv("CNI_PATH", "")
	t.Setenv("NETDRA_STATE", "")
	f := &fake{
		t: t, node: cnitest.NewNode("up0", "up1", "br0"), dir: t.TempDir(), onCall: map[string]func(){},
		last: map[string]view.View{},
		facts: discovery.Facts{Devices: []discovery.Device{
			{Name: "br0", Interface: "br0", Kind: "bridge", Type: discovery.TypeBridge, NUMANode: discovery.None,
				VFIndex: discovery.None, VLANID: discovery.None},
			{Name: "up0", Interface: "up0", AltNames: []string{"enp1s0"}, Kind: "veth", Type: "veth", MTU: 1500,
				NUMANode: discovery.None, VFIndex: discovery.None, VLANID: discovery.None},
			{Name: "up1", Interface: "up1", Kind: "device", Type: discovery.TypeNIC, PCIAddress: "0000:3b:02.1",
				MTU: 9000, NUMANode: 1, VFIndex: discovery.None, VLANID: discovery.None},
		}},
	}
	f.state = filepath.Join(f.dir, "state")
	if err := os.Mkdir(filepath.Join(f.dir, "cni"), 0o755); err != nil {
		t.Fatal(err)
	}
	return f
}

// machine returns the fake as dependencies for the commands.
func (f *fake) machine() osdeps.Deps {
	return osdeps.Deps{
		Plugins:          func(string) osdeps.PluginRunner { return &fakePlugins{Node: f.node, fake: f} },
		PluginDirs:       []string{filepath.Join(f.dir, "driver")},
		Host:             &fakeHost{Node: f.node, fake: f},
		Clock:            instantClock{testingclock.NewFakeClock(time.Unix(0, 0))},
		Facts:            func(context.Context, []netip.Addr) (discovery.Facts, error) { return f.facts, nil },
		Inspect:          f.inspect,
		Hold:             func(path string) (string, func(), error) { return path, func() {}, nil },
		MakeNamespace:    func(path string) error { return f.node.Pin("", path) },
		IsHostNamespace:  func(path string) bool { return path == "/run/netns/own" },
		NewRunID:         func() string { return "netdra-1" },
		CheckPrivilege:   func() error { return nil },
		Hostname:         func() (string, error) { return "node-1", nil },
		NetnsDir:         "/run/netns",
		MissingLinkTypes: f.missingLinkTypes,
		UnavailableLinkTypes: func(types []string) ([]string, error) {
			if f.unprivileged {
				return nil, errors.New("run as root")
			}
			return f.missingLinkTypes(types)
		},
	}
}

// missingLinkTypes returns those types that the kernel does not support.
func (f *fake) missingLinkTypes(types []string) ([]string, error) {
	return sets.List(sets.New(types...).Intersection(sets.New(f.missing...))), nil
}

// inspect returns only the names of links, because the fake has no other data.
func (f *fake) inspect(path string) (view.View, error) {
	shown := view.View{Interfaces: []view.Interface{}, Routes: []view.Route{}}
	if path == "" {
		for _, name := range []string{"up0", "up1", "br0"} {
			if device, err := f.node.Snapshot(cnichain.Device{IfName: name}); err == nil {
				shown.Interfaces = append(shown.Interfaces,
					view.Interface{Name: name, Index: device.Index, Kind: "device"})
			}
		}
		if f.spoil != nil {
			f.spoil(&shown)
		}
		return shown, nil
	}
	if last, gone := f.last[path]; gone && !f.node.Exists(path) {
		return last, nil
	}
	links, err := f.node.Links(path)
	for _, link := range links {
		shown.Interfaces = append(shown.Interfaces, view.Interface{Name: link.Name, Index: link.Index, Kind: "veth",
			MTU: 1500, Up: true, Carrier: true})
	}
	return shown, err
}

// run runs a command line. It replaces the path of the fake's directory in the output with "DIR".
func (f *fake) run(ctx context.Context, arguments ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = f.runTo(ctx, &out, &errs, arguments...)
	return code, f.normal(out.String()), f.normal(errs.String())
}

func (f *fake) runTo(ctx context.Context, out, errs interface{ Write([]byte) (int, error) }, arguments ...string) int {
	full := append([]string{"chain"}, arguments...)
	if arguments[0] == "run" || arguments[0] == "undo" {
		full = append(full, "--state", f.state)
	}
	return run(ctx, f.machine(), printer.Streams{In: strings.NewReader(f.stdin), Out: out, Err: errs}, full...)
}

func (f *fake) normal(text string) string { return strings.ReplaceAll(text, f.dir, "DIR") }

// write creates a file and returns its path.
func (f *fake) write(name, content string) string {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		f.t.Fatal(err)
	}
	return path
}

// expect checks the exit status and the output of a run.
func (f *fake) expect(code, wantCode int, got, want string) {
	f.t.Helper()
	if code != wantCode {
		f.t.Errorf("exit status %d, want %d", code, wantCode)
	}
	if diff := cmp.Diff(strings.TrimLeft(want, "\n"), got); diff != "" {
		f.t.Errorf("wrong output (-want +got):\n%s", diff)
	}
}

// expectNode checks the state of the machine.
func (f *fake) expectNode(want string) {
	f.t.Helper()
	if got := f.node.String(); got != want {
		f.t.Errorf("got machine  %s\nwant machine %s", got, want)
	}
}

const clean = "host [br0 up0 up1] pods [] leases []"

// fakePlugins provides a file for every plugin, since the engine checks whether the file was replaced.
type fakePlugins struct {
	*cnitest.Node
	fake *fake
}

func (p *fakePlugins) FindInPath(plugin string, dirs []string) (string, error) {
	path := filepath.Join(p.fake.dir, "cni", plugin)
	if plugin == "nowhere" || plugin == "drivers" && !slices.Contains(dirs, filepath.Join(p.fake.dir, "driver")) {
		return "", os.ErrNotExist
	}
	return path, os.WriteFile(path, nil, 0o755)
}

func (p *fakePlugins) Call(
	ctx context.Context, path string, stdin []byte, environ []string,
) (executor.CallOutput, error) {
	for _, variable := range environ {
		if command, matches := strings.CutPrefix(variable, "CNI_COMMAND="); matches {
			if hook := p.fake.onCall[filepath.Base(path)+" "+command]; hook != nil {
				hook()
			}
		}
	}
	return p.Node.Call(ctx, path, stdin, environ)
}

func (p *fakePlugins) AwaitEarlier(context.Context, time.Duration) error { return p.fake.stuck }

// fakeHost records the content of a namespace when the namespace's name is removed.
type fakeHost struct {
	*cnitest.Node
	fake *fake
}

func (h *fakeHost) Unpin(pin string) error {
	if h.Exists(pin) {
		last, err := h.fake.inspect(pin)
		if err != nil {
			return err
		}
		h.fake.last[pin] = last
	}
	return h.Node.Unpin(pin)
}

// instantClock does not advance and never blocks.
type instantClock struct{ *testingclock.FakeClock }

func (c instantClock) After(time.Duration) <-chan time.Time {
	fired := make(chan time.Time, 1)
	fired <- c.Now()
	return fired
}

const linkThenTune = `# host-device, then tuning
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: moved}
spec:
  steps:
  - name: link
    type: host-device
    selector: {cel: "true"}
    config: {args: {mtu: "{{ device.mtu }}", note: "{{ device.ifName }} of {{ pod.name }}"}, ipam: {type: host-local, subnet: 10.99.0.0/24}}
  - name: tune
    type: tuning
    dependOn: [link]
    config: {mtu: 1400}
`
