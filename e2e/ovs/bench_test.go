package ovs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	testbench "github.com/dra-networking/dra-network-driver/e2e/internal/bench"
)

// pf0 and pf1 are the machine's physical functions.
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
	// state is the directory in which plugins store their state.
	state = "/var/lib/cni"
)

// patience is the time limit for each operation in the virtual machine, where all code is emulated.
const patience = 2 * time.Minute

// bench represents the machine with Open vSwitch.
type bench struct{ *testbench.Bench }

func (b *bench) must(err error) { b.Helper(); b.Must(err) }

func (b *bench) eventually(what string, check func() error) { b.Helper(); b.Eventually(what, check) }

func (b *bench) try(args ...string) error {
	_, err := b.TryExec(args...)
	return err
}

// uplink returns the name of a PCI function's link.
func (b *bench) uplink(address string) string {
	b.Helper()
	return b.LinkOf(address).Attrs().Name
}

// newBench starts Open vSwitch with an empty database. At the end of the test, it stops Open vSwitch and removes its
// state from the kernel.
func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{testbench.New(t, patience, "use make ovs-test")}
	if _, err := exec.LookPath(daemon); err != nil {
		t.Skipf("needs a machine with Open vSwitch; use lab vm test --ovs: %v", err)
	}
	for _, dir := range []string{runDir, state} {
		b.must(os.MkdirAll(dir, 0o755))
	}
	b.Exec("ovsdb-tool", "create", database, schema)
	b.startServer()
	b.Exec("ovs-vsctl", "--no-wait", "init")
	b.startDaemon()
	t.Cleanup(func() {
		if b.processOf(daemon) != 0 {
			b.ends(daemon, func() error { return b.try("ovs-appctl", "-t", daemon, "exit", "--cleanup") })
		}
		if b.processOf(server) != 0 {
			b.kill(server)
		}
		b.must(errors.Join(os.RemoveAll(runDir), os.RemoveAll(state))) // a failed test must not affect later tests
	})
	return b
}

func (b *bench) startServer() {
	b.Helper()
	b.Exec(server, database, "--remote=punix:"+runDir+"/db.sock", "--pidfile", "--detach", "--no-chdir",
		"--log-file="+runDir+"/server.log", "-vconsole:off")
}

func (b *bench) startDaemon() {
	b.Helper()
	b.Exec(daemon, "--pidfile", "--detach", "--no-chdir", "--log-file="+runDir+"/daemon.log", "-vconsole:off")
}

// processOf returns a daemon's process ID, or 0 if the daemon is not running.
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

// kill simulates a crash of a daemon, which leaves its state in the kernel.
func (b *bench) kill(name string) {
	b.Helper()
	b.ends(name, func() error { return unix.Kill(b.processOf(name), unix.SIGKILL) })
}

// ends calls end and waits until the daemon has exited.
func (b *bench) ends(name string, end func() error) {
	b.Helper()
	pid := b.processOf(name)
	if pid == 0 {
		b.Fatalf("%s is not running", name)
	}
	b.must(end())
	b.eventually("end of "+name, func() error {
		if unix.Kill(pid, 0) == nil {
			return fmt.Errorf("process %d still exists", pid)
		}
		return nil
	})
}

// vsctl runs ovs-vsctl, which changes or queries the database, and returns its output.
func (b *bench) vsctl(args ...string) string {
	b.Helper()
	return b.Exec(append([]string{"ovs-vsctl"}, args...)...)
}

// ports returns a bridge's ports and their VLANs according to the database.
func (b *bench) ports(bridge string) (lines []string) {
	b.Helper()
	for name := range strings.FieldsSeq(b.vsctl("list-ports", bridge)) {
		lines = append(lines, strings.TrimSpace(name+" "+b.vlans(name)))
	}
	return lines
}

// vlans returns the VLANs that a port is on: its tag, or its trunks.
func (b *bench) vlans(port string) string {
	b.Helper()
	return strings.Join(strings.Fields(strings.NewReplacer("[", "", "]", "", ",", "").Replace(
		b.vsctl("get", "port", port, "tag")+" "+b.vsctl("get", "port", port, "trunks"))), " ")
}

// emptiness checks that plugins have left no files behind except locks and the last assigned address.
func (b *bench) emptiness() {
	b.Helper()
	b.must(filepath.WalkDir(state, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() == "lock" ||
			strings.HasPrefix(entry.Name(), "last_reserved_ip") {
			return err
		}
		b.Errorf("a plugin left the file %s behind", path)
		return nil
	}))
}

// same fails the test if two lists differ.
func (b *bench) same(what string, want, have []string) {
	b.Helper()
	if diff := cmp.Diff(want, have); diff != "" {
		b.Errorf("%s (-want +have):\n%s", what, diff)
	}
}

// driver is the part of the project's driver that runs chains.
type driver struct{ *testbench.Driver }

func newDriver(b *bench) *driver {
	b.Helper()
	return &driver{b.NewDriver(executor.Options{GiveUpAttempts: 4})}
}

type pod = testbench.Pod

// prepare creates a pod and prepares a claim for it. The first step in the topology is allocated the given link on the
// machine.
func (d *driver) prepare(name, link, steps string, exclusive bool) *pod {
	return d.Pod(name, steps, cnichain.Device{IfName: link, Exclusive: exclusive})
}
