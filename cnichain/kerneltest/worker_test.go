package kerneltest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/version"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/host"
	"github.com/dra-networking/dra-network-driver/cnichain/journal"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// workerVariable is the environment variable with the orders for a driver process.
const workerVariable = "KERNELTEST_WORKER"

// orders selects the actions that a driver process performs with the journal in Dir, in this order: roll back the
// attachments of an earlier process, attach, detach.
type orders struct {
	Dir      string
	CNIDirs  []string
	Topology string
	Devices  []cnichain.RootDevice
	Sandbox  string
	Pod      string // path of the pod's namespace
	Recover  bool
	Add      bool
	Del      bool
	// KillAt is the number of the kill point at which the process kills itself, starting at 1; 0 means never.
	KillAt int
}

// work acts as a driver without Kubernetes.
func work() int {
	var o orders
	err := json.Unmarshal([]byte(os.Getenv(workerVariable)), &o)
	if err == nil {
		err = o.run(context.Background())
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func (o *orders) run(ctx context.Context) error {
	points := &killPoints{number: o.KillAt, file: filepath.Join(o.Dir, "points")}
	opened, err := journal.Open(filepath.Join(o.Dir, "journal.db"), clock.RealClock{})
	if err != nil {
		return err
	}
	defer func() { _ = opened.Close() }()
	chains, err := journal.NewChains(opened.DB)
	if err != nil {
		return err
	}
	exec := executor.PluginExec{Lock: filepath.Join(o.Dir, "cni.lock")}
	runner := executor.New(executor.Options{
		Exec: killingExec{PluginExec: exec, points: points}, Journal: killingJournal{Chains: chains, points: points},
		Host: killingHost{points: points}, Dirs: o.CNIDirs,
	})
	left, _, err := chains.Load(runner)
	if err != nil {
		return err
	}
	if o.Recover {
		if err := exec.AwaitEarlier(ctx, 30*time.Second); err != nil {
			return err
		}
		for _, attachment := range left {
			if err := runner.Del(ctx, attachment); err != nil {
				return err
			}
		}
	}
	if o.Add {
		if left[o.Sandbox], err = o.attach(ctx, runner); err != nil {
			return err
		}
	}
	if o.Del {
		return runner.Del(ctx, left[o.Sandbox])
	}
	return nil
}

func (o *orders) attach(ctx context.Context, runner *executor.Executor) (*executor.Attachment, error) {
	topology := &v1alpha1.NetworkTopology{}
	topology.Name = "t"
	if err := yaml.UnmarshalStrict([]byte(o.Topology), &topology.Spec.Steps); err != nil {
		return nil, err
	}
	plugins, err := runner.Probe(ctx, cnichain.Types(topology))
	if err != nil {
		return nil, err
	}
	devices := slices.Clone(o.Devices)
	for i := range devices {
		if devices[i].Device, err = (host.Linux{}).Snapshot(devices[i].Device); err != nil {
			return nil, err
		}
	}
	plan, problems := cnichain.Compile(topology, cnichain.Binding{
		Claim: cnichain.Claim{Namespace: "ns", Name: "c", UID: "c"}, Node: "n", Schemas: cnichain.DefaultSchemas(),
		Plugins: plugins, Devices: devices,
	})
	if len(problems) > 0 {
		return nil, problems.ToAggregate()
	}
	attachment := executor.NewAttachment(o.Sandbox, executor.Pod{Namespace: "ns", Name: "p", UID: "u"},
		[]cnichain.Plan{*plan})
	attachment.Pin = filepath.Join("/run/netns", "dra-"+o.Sandbox)
	return attachment, runner.Add(ctx, attachment, o.Pod, "n")
}

// killPoints counts the points where a process may die, and kills the process at one of them.
type killPoints struct {
	number int
	file   string

	mu     sync.Mutex
	passed int
}

// pass is a kill point. It records its name in a file, which helps to explain a failure.
func (k *killPoints) pass(what string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.passed++
	_ = os.WriteFile(k.file, fmt.Appendf(nil, "%d %s", k.passed, what), 0o600)
	if k.passed == k.number {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal may take a moment to arrive
	}
}

// around adds a kill point before and after a call.
func (k *killPoints) around(what string, call func() error) error {
	k.pass("before " + what)
	err := call()
	k.pass("after " + what)
	return err
}

type killingJournal struct {
	*journal.Chains
	points *killPoints
}

func (j killingJournal) Save(attachment *executor.Attachment) error {
	return j.points.around("Save", func() error { return j.Chains.Save(attachment) })
}

func (j killingJournal) Note(attachment *executor.Attachment) error {
	return j.points.around("Note", func() error { return j.Chains.Note(attachment) })
}

func (j killingJournal) Delete(id string) error {
	return j.points.around("Delete", func() error { return j.Chains.Delete(id) })
}

func (j killingJournal) SaveLeftover(leftover executor.Leftover) error {
	return j.points.around("SaveLeftover", func() error { return j.Chains.SaveLeftover(leftover) })
}

type killingExec struct {
	executor.PluginExec
	points *killPoints
}

func (e killingExec) Call(
	ctx context.Context, path string, stdin []byte, environ []string,
) (output executor.CallOutput, err error) {
	_ = e.points.around(filepath.Base(path)+" "+environ[0], func() error {
		output, err = e.PluginExec.Call(ctx, path, stdin, environ)
		return nil
	})
	return output, err
}

// ExecPlugin is not a kill point, since it only queries versions.
func (e killingExec) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	return e.PluginExec.ExecPlugin(ctx, path, stdin, environ)
}

func (e killingExec) Decode(document []byte) (version.PluginInfo, error) {
	return e.PluginExec.Decode(document)
}

type killingHost struct {
	host.Linux
	points *killPoints
}

func (h killingHost) Pin(path, pin string) error {
	return h.points.around("Pin", func() error { return h.Linux.Pin(path, pin) })
}

func (h killingHost) Unpin(pin string) error {
	return h.points.around("Unpin", func() error { return h.Linux.Unpin(pin) })
}

func (h killingHost) BindDriver(device cnichain.Device) (nodes []string, err error) {
	err = h.points.around("BindDriver", func() error {
		nodes, err = h.Linux.BindDriver(device)
		return err
	})
	return nodes, err
}

func (h killingHost) Restore(device cnichain.Device) error {
	return h.points.around("Restore", func() error { return h.Linux.Restore(device) })
}
