package suite

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/e2e/internal/observer"
)

// TestJudges tests the checks that other tests rely on: they must detect a container without its interface, and
// anything left behind on the node.
func TestJudges(t *testing.T) {
	e := newEnv(t, "judges")
	t.Run("observer", func(t *testing.T) {
		e := e.part(t)
		e.create(strings.Replace(pod("p", ""), "    image:", "    env: [{name: "+observer.Pod+", value: p}, {name: "+
			observer.Interfaces+", value: \"eth0,net1\"}]\n    image:", 1))
		watching := observer.New(e.fileOnNode("/proc"), nil)
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		go watching.Run(ctx)
		e.eventually("the observer finds that an interface is missing", func(context.Context) (bool, error) {
			findings, _, _ := watching.Report()
			return slices.ContainsFunc(findings, func(finding string) bool {
				return strings.HasPrefix(finding, "pod p: ") && strings.HasSuffix(finding, " runs without net1")
			}), nil
		})
		e.deleting("p")
		e.gone("p")
	})
	for what, path := range map[string]string{
		"pin":                 "/var/run/netns/dra-stray",
		"namespace":           "/var/run/netns/stray",
		"address":             "/var/lib/cni/networks/stray.link/10.0.0.2",
		"result":              "/var/lib/cni/results/stray-link-eth0",
		"record until a boot": "/run/cni/stray",
		"gate":                "/var/run/cdi/dra.networking-stray.json",
		"half of a gate":      "/var/run/cdi/spec.stray.tmp",
		"metadata":            "/var/lib/kubelet/plugins/dra.networking/dra-device-metadata/judges_stray/net/metadata.json",
		"mount of metadata":   "/var/run/cdi/dra.networking_metadata_stray_net.json",
	} {
		t.Run(what, func(t *testing.T) { e.part(t).straySeen(path) })
	}
	t.Run("link", func(t *testing.T) {
		e := e.part(t)
		before := e.state()
		e.veth("ju0")
		planted := e.state()
		if cmp.Equal(before, planted) {
			t.Error("a remaining link was not detected")
		}
		e.must("ip", "link", "set", "ju0", "alias", "stray")
		if cmp.Equal(planted, e.state()) {
			t.Error("a link that was restored with a different alias was not detected")
		}
	})
	t.Run("plugin", func(t *testing.T) { e.part(t).pluginSeen() })
	t.Run("pod", func(t *testing.T) { e.part(t).attachmentSeen() })
}

// straySeen checks that a remaining file is detected, and that it is on the node, not on the host.
func (e *env) straySeen(path string) {
	e.Helper()
	before := e.state()
	stray := e.fileOnNode(path)
	made := filepath.Dir(stray)
	for ; !exists(filepath.Dir(made)); made = filepath.Dir(made) {
	}
	isNew := !exists(made)
	if err := os.MkdirAll(filepath.Dir(stray), 0o750); err != nil {
		e.Fatal(err)
	}
	remove := func() { _ = os.Remove(stray) }
	if isNew {
		remove = func() { _ = os.RemoveAll(made) }
	}
	e.Cleanup(remove)
	if err := os.WriteFile(stray, nil, 0o600); err != nil {
		e.Fatal(err)
	}
	if cmp.Equal(before, e.state()) {
		e.Errorf("%s was not detected", path)
	}
	if exists(path) {
		e.Errorf("%s exists on the host, want it only on the node", path)
	}
	e.must("test", "-f", path) // on the node
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// pluginSeen checks that a running CNI plugin is detected.
func (e *env) pluginSeen() {
	e.Helper()
	before := e.state()
	plugin := e.cluster.Command(context.Background(), "/opt/cni/bin/slow-macvlan") // first reads all of its input
	input, err := plugin.StdinPipe()
	if err == nil {
		err = e.cluster.StartCommand(plugin)
	}
	if err != nil {
		e.Fatal(err)
	}
	e.eventually("the plugin that runs is noticed", func(ctx context.Context) (bool, error) {
		now, err := e.nodeState(ctx)
		return now.Plugins == before.Plugins+1, err
	})
	_ = input.Close()
	_ = plugin.Wait() // the plugin fails without input
}

// pinName matches the namespace pin of one attempt to attach a sandbox.
var pinName = regexp.MustCompile(`^dra-[0-9a-f]{32}\.[0-9a-z]{8,}$`)

// attachmentSeen checks that each kind of resource that a running pod uses on the node is detected under its actual
// name.
func (e *env) attachmentSeen() {
	e.Helper()
	e.offerMacvlan("ju1", "10.149.0.0/24")
	before := e.state()
	e.create(pod("attached", "ju1"))
	e.ready("attached")
	now := e.state()
	pins := slices.DeleteFunc(slices.Clone(now.Pins),
		func(pin string) bool { return slices.Contains(before.Pins, pin) })
	if len(pins) != 1 || !pinName.MatchString(pins[0]) {
		e.Errorf("new pins = %q, want one", pins)
	}
	added := strings.Join(slices.DeleteFunc(slices.Concat(now.Files, now.Journal), func(line string) bool {
		return slices.Contains(before.Files, line) || slices.Contains(before.Journal, line)
	}), "\n")
	for _, kind := range []string{
		"/var/lib/cni/networks/", "/var/run/cdi/dra.networking-", "/var/run/cdi/dra.networking_metadata_",
		"/var/lib/kubelet/plugins/dra.networking/dra-device-metadata/judges_", "claims: ", "sandboxes: ",
	} {
		if !strings.Contains("\n"+added, "\n"+kind) {
			e.Errorf("no line for the attached pod begins with %q in\n%s", kind, added)
		}
	}
	if logs := e.filesOnNode("/var/log/dra-network/judges_attached-net-*/*.jsonl"); len(logs) != 1 {
		e.Errorf("CNI logs = %q, want one", logs)
	}
	e.deleting("attached")
	e.gone("attached")
	e.asItWas(before)
}
