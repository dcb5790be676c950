package kerneltest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/vishvananda/netlink"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/host"
	"github.com/dra-networking/dra-network-driver/cnichain/journal"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// threeDoubles is a chain of three scripted plugins, each of which creates a link.
const threeDoubles = `
- {name: a, type: first, selector: {cel: "true"}}
- {name: b, type: second, dependOn: [a]}
- {name: c, type: third, dependOn: [b, a]}
`

// bench is a machine with a pod, the scripted plugin installed under three names, and an executor with a journal on
// disk.
type bench struct {
	testHost
	plugins  map[string]*plugin
	pod, pin string
	dir      string
	db       *journal.DB
	executor *executor.Executor
	left     map[string]*executor.Attachment
	before   []string
}

func newBench(t *testing.T) *bench {
	dir := t.TempDir()
	b := &bench{testHost: testHost{T: t}, dir: dir, plugins: map[string]*plugin{}}
	for _, name := range []string{"first", "second", "third"} {
		b.plugins[name] = installPlugin(t, dir, name)
		b.dirs = append(b.dirs, b.plugins[name].path+".state")
	}
	b.dirs = append(b.dirs, "/run/netns")
	b.pod = cnitest.NewPod(t, "pod")
	b.pods, b.pin = []string{b.pod}, "/run/netns/dra-sandbox"
	b.before = b.state()
	t.Cleanup(func() { _ = b.db.Close() })
	b.restart()
	return b
}

// restart stops the driver and starts a new one with the same journal.
func (b *bench) restart() {
	b.Helper()
	if b.db != nil {
		b.must(b.db.Close())
	}
	opened, err := journal.Open(filepath.Join(b.dir, "journal.db"), clocktesting.NewFakeClock(time.Unix(0, 0)))
	b.must(err)
	b.db = opened.DB
	chains, err := journal.NewChains(opened.DB)
	b.must(err)
	b.executor = executor.New(executor.Options{
		Exec: executor.PluginExec{}, Host: host.Linux{}, Journal: chains, Dirs: []string{b.dir},
		StepTimeout: 10 * time.Second,
	})
	b.left, _, err = chains.Load(b.executor)
	b.must(err)
}

func (b *bench) attachment(steps string) *executor.Attachment {
	b.Helper()
	topology := &v1alpha1.NetworkTopology{}
	topology.Name = "t"
	b.must(yaml.UnmarshalStrict([]byte(steps), &topology.Spec.Steps))
	plugins, err := b.executor.Probe(context.Background(), cnichain.Types(topology))
	b.must(err)
	plan, problems := cnichain.Compile(topology, cnichain.Binding{
		Claim: cnichain.Claim{Namespace: "ns", Name: "c", UID: "c"}, Node: "n", Schemas: cnichain.DefaultSchemas(),
		Plugins: plugins,
		Devices: []cnichain.RootDevice{{Step: topology.Spec.Steps[0].Name,
			Device: cnichain.Device{Name: "d", IfName: "d", CNIs: []string{"first"}}}},
	})
	if len(problems) > 0 {
		b.Fatal(problems)
	}
	made := executor.NewAttachment("sandbox", executor.Pod{Namespace: "ns", Name: "p", UID: "u"},
		[]cnichain.Plan{*plan})
	made.Pin = b.pin
	return made
}

func (b *bench) add(attachment *executor.Attachment) error {
	return b.executor.Add(context.Background(), attachment, b.pod, "n")
}

// undoneByNext has the next driver roll back the remaining attachments, with as many attempts as a real driver would
// make.
func (b *bench) undoneByNext() {
	b.Helper()
	for range 11 {
		b.restart()
		if len(b.left) == 0 {
			return
		}
		for _, attachment := range b.left {
			_ = b.executor.Del(context.Background(), attachment)
		}
	}
	b.Errorf("the journal still contains records: %v", b.left)
}

// Whichever step fails, and however it fails, the host is in its original state after the failed ADD and its rollback.
func TestDoubleFaultsAtAdd(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	b := newBench(t)
	for fault, words := range map[behaviour]string{
		failsBefore: "scripted to fail", failsAfter: "scripted to fail", crashes: "panic: scripted to crash",
		pretends:      "has no interface",
		printsGarbage: "no CNI result", printsTwo: "more than one document", printsTooMuch: "printed more than",
	} {
		for _, moment := range []string{"first", "second", "third"} {
			what := fmt.Sprintf("%s of %s", fault, moment)
			b.plugins[moment].follow(t, script{"ADD": fault})
			err := b.add(b.attachment(threeDoubles))
			if err == nil || !strings.Contains(err.Error(), words) || !strings.Contains(err.Error(), "("+moment+")") {
				t.Errorf("%s: error = %v, want %q", what, err, words)
			}
			b.expect(what, b.before)
			b.plugins[moment].follow(t, script{})
			b.restart()
			if len(b.left) > 0 {
				t.Errorf("%s: the journal still contains records", what)
			}
		}
	}
	made := b.attachment(threeDoubles)
	b.must(b.add(made))
	b.must(b.executor.Del(context.Background(), made))
	b.expect("no fault", b.before)
}

// The same applies to DEL: the driver either removes the interfaces that the plugin leaves behind in the kernel, or
// retries.
func TestDoubleFaultsAtDel(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	b := newBench(t)
	for _, fault := range []behaviour{failsBefore, failsAfter, crashes, pretends, printsGarbage, printsTooMuch} {
		for _, moment := range []string{"first", "second", "third"} {
			for _, when := range []string{"", "once", "and restart", "at a failing ADD"} {
				what := fmt.Sprintf("%s of %s %s", fault, moment, when)
				b.plugins[moment].follow(t, script{"DEL": fault})
				made := b.attachment(threeDoubles)
				if when == "at a failing ADD" {
					b.plugins["third"].follow(t, script{"ADD": failsAfter, "DEL": fault})
				}
				_ = b.add(made)
				_ = b.executor.Del(context.Background(), made)
				if when == "once" || when == "at a failing ADD" {
					for _, p := range b.plugins {
						p.follow(t, script{})
					}
				}
				b.undoneByNext()
				b.forget()
				b.expect(what, b.before)
				b.plugins[moment].follow(t, script{})
			}
		}
	}
}

// forget removes the private state of a plugin that does not clean up, since no other component can find this state.
func (b *bench) forget() {
	for _, p := range b.plugins {
		b.must(os.RemoveAll(p.path + ".state"))
		b.must(os.Mkdir(p.path+".state", 0o700))
	}
}

// A plugin that hangs is killed along with all processes that it started, and its step is rolled back.
func TestDoubleHangs(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	b := newBench(t)
	b.executor.StepTimeout = 2 * time.Second // on a busy machine, even a DEL may take a long time
	b.plugins["second"].follow(t, script{"ADD": hangs})
	err := b.add(b.attachment(threeDoubles)) // would never return if it waited for the grandchild
	if err == nil || !strings.Contains(err.Error(), "time limit") {
		t.Errorf("unexpected error: %v", err)
	}
	b.expect("hang", b.before)
	if left := processesOf(t, b.plugins["second"].path); len(left) > 0 {
		t.Errorf("processes are still running: %v", left)
	}
}

// processesOf finds the running processes of a scripted plugin, including grandchildren.
func processesOf(t *testing.T, path string) (found []string) {
	t.Helper()
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, environ := range environs {
		data, err := os.ReadFile(environ)
		if err != nil {
			continue // it has exited
		}
		command, _ := os.ReadFile(filepath.Join(filepath.Dir(environ), "cmdline"))
		if strings.HasPrefix(string(command), path+"\x00") ||
			strings.HasPrefix(string(data), grandchildVariable+"="+path+"\x00") {
			found = append(found, filepath.Base(filepath.Dir(environ)))
		}
	}
	return found
}

// Another process creates a link with the step's name after the name was found to be free, so the plugin fails. The
// driver must not delete that link.
func TestDoubleLosesTheRaceForAName(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	b := newBench(t)
	b.plugins["second"].follow(t, script{"ADD": failsWithExists})
	err := b.add(b.attachment(threeDoubles))
	if err == nil || !strings.Contains(err.Error(), "file exists") {
		t.Errorf("unexpected error: %v", err)
	}
	b.must(inPod(b.pod, func(handle *netlink.Handle) error {
		link, err := handle.LinkByName("net2")
		if err != nil {
			return fmt.Errorf("the other process's link no longer exists: %w", err)
		}
		return handle.LinkDel(link)
	}))
	b.expect("but for the other's link", b.before)
}

// A driver is killed while a plugin is running, and the plugin carries on. The next driver waits for the plugin before
// it rolls back anything: an ADD that finishes after its DEL would leave interfaces that no component tracks.
func TestKilledWhileAPluginRuns(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	b := newBench(t)
	gate := b.plugins["second"].path + ".go"
	b.must(syscall.Mkfifo(gate, 0o600))
	b.plugins["second"].follow(t, script{"ADD": waits})
	s := &sweep{testHost: b.testHost, orders: orders{
		Dir: t.TempDir(), CNIDirs: []string{b.dir}, Topology: threeDoubles, Sandbox: "sandbox", Pod: b.pod,
		Devices: []cnichain.RootDevice{{Step: "a",
			Device: cnichain.Device{Name: "d", IfName: "lo", CNIs: []string{"first"}}}},
	}}
	first := s.process(orders{Add: true})
	b.must(first.Start())
	b.await(b.plugins["second"].path + ".started")
	b.must(first.Process.Kill())
	_ = first.Wait()

	next := s.process(orders{Recover: true})
	b.must(next.Start())
	// Nothing is rolled back until the plugin exits, however long that takes, so the first step's link still exists.
	b.must(inPod(b.pod, func(handle *netlink.Handle) error {
		_, err := handle.LinkByName("net1")
		return err
	}))
	release, err := os.OpenFile(gate, os.O_WRONLY, 0)
	b.must(err)
	b.must(release.Close())
	b.must(next.Wait())
	b.expect("after the plugin has ended", b.before)
}

// await waits until a file exists.
func (b *bench) await(path string) {
	b.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(20 * time.Second)
	for {
		if _, err := os.Stat(path); err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			b.Fatalf("timed out waiting for %s to appear", path)
		}
	}
}
