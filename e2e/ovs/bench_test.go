package ovs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/e2e/vm/guest"
)

// pf0 and pf1 are the physical functions of the machine.
const (
	pf0 = "0000:41:00.0"
	pf1 = "0000:81:00.0"
)

const (
	runDir   = "/var/run/openvswitch"
	database = runDir + "/test.db"
	schema   = "/usr/share/openvswitch/vswitch.ovsschema"
	server   = "ovsdb-server"
	daemon   = "ovs-vswitchd"
	// state is where plugins keep what they have done.
	state = "/var/lib/cni"
)

// patience is how long anything may take inside, where all code is emulated.
const patience = 2 * time.Minute

// The main thread must stay in the machine's namespace, since a main thread can't end: a pod that a goroutine has
// entered and not left would live as long as the process.
var _ = func() bool { runtime.LockOSThread(); return true }()

// bench is the machine, with Open vSwitch.
type bench struct {
	*testing.T
}

// newBench starts Open vSwitch with an empty database. It ends with the test, and takes what it has in the kernel
// along.
func newBench(t *testing.T) *bench {
	t.Helper()
	if os.Getenv(guest.Variable) == "" {
		t.Skip("needs a machine with Open vSwitch of its own: use make ovs-test")
	}
	if _, err := exec.LookPath(daemon); err != nil {
		t.Skipf("needs a machine with Open vSwitch: use lab vm test --ovs: %v", err)
	}
	b := &bench{T: t}
	for _, dir := range []string{"/run/netns", runDir, state} {
		b.must(os.MkdirAll(dir, 0o755))
	}
	b.run("ovsdb-tool", "create", database, schema)
	b.startServer()
	b.run("ovs-vsctl", "--no-wait", "init")
	b.startDaemon()
	t.Cleanup(func() {
		if b.processOf(daemon) != 0 {
			b.ends(daemon, func() error { return b.try("ovs-appctl", "-t", daemon, "exit", "--cleanup") })
		}
		if b.processOf(server) != 0 {
			b.kill(server)
		}
		b.must(errors.Join(os.RemoveAll(runDir), os.RemoveAll(state))) // a test that failed is no other's fault
	})
	return b
}

func (b *bench) startServer() {
	b.Helper()
	b.run(server, database, "--remote=punix:"+runDir+"/db.sock", "--pidfile", "--detach", "--no-chdir",
		"--log-file="+runDir+"/server.log", "-vconsole:off")
}

func (b *bench) startDaemon() {
	b.Helper()
	b.run(daemon, "--pidfile", "--detach", "--no-chdir", "--log-file="+runDir+"/daemon.log", "-vconsole:off")
}

// processOf is the process of a daemon; 0 if it does not run.
func (b *bench) processOf(name string) int {
	data, err := os.ReadFile(filepath.Join(runDir, name+".pid"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || unix.Kill(pid, 0) != nil {
		return 0
	}
	return pid
}

// kill ends a daemon as a crash does: what it has in the kernel stays.
func (b *bench) kill(name string) {
	b.Helper()
	b.ends(name, func() error { return unix.Kill(b.processOf(name), unix.SIGKILL) })
}

// ends waits until a daemon has ended.
func (b *bench) ends(name string, end func() error) {
	b.Helper()
	pid := b.processOf(name)
	if pid == 0 {
		b.Fatalf("%s does not run", name)
	}
	b.must(end())
	b.eventually("end of "+name, func() error {
		if unix.Kill(pid, 0) == nil {
			return fmt.Errorf("process %d lives", pid)
		}
		return nil
	})
}

// run runs a command that must succeed, and returns what it printed.
func (b *bench) run(args ...string) string {
	b.Helper()
	output, err := output(args...)
	b.must(err)
	return strings.TrimSpace(string(output))
}

func (b *bench) try(args ...string) error {
	_, err := output(args...)
	return err
}

// output does not wait for ever: some commands do that for a daemon that does not run.
func output(args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	text, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%q: %w: %s", args, err, text)
	}
	return text, nil
}

// vsctl changes or asks the database.
func (b *bench) vsctl(args ...string) string {
	b.Helper()
	return b.run(append([]string{"ovs-vsctl"}, args...)...)
}

// ports are those of a bridge, with the VLANs that they have in the database.
func (b *bench) ports(bridge string) (lines []string) {
	b.Helper()
	for name := range strings.FieldsSeq(b.vsctl("list-ports", bridge)) {
		lines = append(lines, strings.TrimSpace(name+" "+b.vlans(name)))
	}
	return lines
}

// vlans are those of a port: its tag, or its trunks.
func (b *bench) vlans(port string) string {
	b.Helper()
	return strings.Join(strings.Fields(strings.NewReplacer("[", "", "]", "", ",", "").Replace(
		b.vsctl("get", "port", port, "tag")+" "+b.vsctl("get", "port", port, "trunks"))), " ")
}

// emptiness expects that plugins keep nothing: no file but those of locks and notes on the last address.
func (b *bench) emptiness() {
	b.Helper()
	b.must(filepath.WalkDir(state, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() == "lock" ||
			strings.HasPrefix(entry.Name(), "last_reserved_ip") {
			return err
		}
		b.Errorf("a plugin still has %s", path)
		return nil
	}))
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// same compares lists.
func (b *bench) same(what string, want, have []string) {
	b.Helper()
	if diff := cmp.Diff(want, have); diff != "" {
		b.Errorf("%s (-want +have):\n%s", what, diff)
	}
}

// eventually repeats a look until it finds nothing wrong.
func (b *bench) eventually(what string, condition func() error) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			b.Fatalf("no %s after %s: %v", what, patience, err)
		}
	}
}

func (b *bench) link(name string) netlink.Link {
	b.Helper()
	link, err := netlink.LinkByName(name)
	b.must(err)
	return link
}

// add makes a link of the machine and sets it up. It is removed at the end if it is still there.
func (b *bench) add(link netlink.Link) {
	b.Helper()
	b.must(netlink.LinkAdd(link))
	b.Cleanup(func() {
		var missing netlink.LinkNotFoundError
		if err := netlink.LinkDel(link); err != nil && !errors.As(err, &missing) && !errors.Is(err, unix.ENODEV) {
			b.Error(err)
		}
	})
	b.must(netlink.LinkSetUp(link))
}

// uplink is the link of a physical function.
func (b *bench) uplink(address string) string {
	b.Helper()
	links, err := os.ReadDir(filepath.Join("/sys/bus/pci/devices", address, "net"))
	b.must(err)
	if len(links) != 1 {
		b.Fatalf("%s has %d links, want one", address, len(links))
	}
	return links[0].Name()
}
