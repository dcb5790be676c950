package executor_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/calllog"
	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/journal"
)

// onDisk returns an on-disk journal like the driver's.
func onDisk(b *testing.B) *journal.Chains {
	b.Helper()
	opened, err := journal.Open(filepath.Join(b.TempDir(), "journal.db"), clock.RealClock{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = opened.Close() })
	chains, err := journal.NewChains(opened.DB)
	if err != nil {
		b.Fatal(err)
	}
	return chains
}

// cycle attaches and detaches a sandbox.
func cycle(b *testing.B, executor *executor.Executor, made *executor.Attachment) {
	if err := executor.Add(context.Background(), made, "ns", "n"); err != nil {
		b.Error(err)
	}
	if err := executor.Del(context.Background(), made); err != nil {
		b.Error(err)
	}
}

// BenchmarkChain measures ADD and DEL for a chain of two steps, excluding the time spent in plugins, once with the
// journal in memory and once with the journal on disk.
func BenchmarkChain(b *testing.B) {
	for _, name := range []string{"memory", "disk"} {
		b.Run(name, func(b *testing.B) {
			var store executor.Journal = &cnitest.Journal{}
			if name == "disk" {
				store = onDisk(b)
			}
			node := cnitest.NewNode("up0", "up1")
			runner := executor.New(executor.Options{Exec: node, Host: node, Journal: store,
				Dirs: []string{cnitest.PluginDir}})
			plan := benchPlan(b)
			b.ReportAllocs()
			for b.Loop() {
				cycle(b, runner, attachment(plan))
			}
		})
	}
}

// BenchmarkFsync measures the minimum cost of a commit: one 4 KiB write followed by fsync.
func BenchmarkFsync(b *testing.B) {
	file, err := os.Create(filepath.Join(b.TempDir(), "file"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for b.Loop() {
		if _, err := file.WriteAt(make([]byte, 4096), 0); err != nil {
			b.Fatal(err)
		}
		if err := file.Sync(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCommit measures one commit of an attachment with eight steps.
func BenchmarkCommit(b *testing.B) {
	chains, made := onDisk(b), attachment(noopPlan(8))
	for b.Loop() {
		if err := chains.Save(made); err != nil {
			b.Fatal(err)
		}
	}
}

// noop is a plugin that does nothing.
const noop = `#!/bin/sh
echo '{"cniVersion":"1.1.0"}'
`

// noopPlan is a chain of steps that modify an existing interface.
func noopPlan(steps int) cnichain.Plan {
	plan := cnichain.Plan{Topology: "t", Claim: cnichain.Claim{Namespace: "ns", Name: "c", UID: "c"}}
	for i := range steps {
		plan.Steps = append(plan.Steps, cnichain.PlanStep{
			Name: fmt.Sprintf("s%d", i), Type: "noop", CNIVersion: "1.1.0", Network: "t", IfName: "net1",
			Config: []byte(`{"mtu":1400}`),
		})
	}
	return plan
}

// BenchmarkOverhead runs ADD and DEL for chains of eight steps, with a plugin that does nothing and the journal on
// disk. It reports the overhead of each call beyond the run time of the plugin process.
func BenchmarkOverhead(b *testing.B) {
	const steps = 8
	path := filepath.Join(b.TempDir(), "noop")
	if err := os.WriteFile(path, []byte(noop), 0o755); err != nil {
		b.Fatal(err)
	}
	bare := bareExec(b, path)
	node := cnitest.NewNode()
	runner := executor.New(executor.Options{
		Exec: executor.PluginExec{Lock: filepath.Join(b.TempDir(), "lock")}, Host: node, Journal: onDisk(b),
		Dirs: []string{filepath.Dir(path)},
		Log:  calllog.New(b.TempDir(), func(err error) { b.Error(err) }),
	})
	plan := noopPlan(steps)
	for i := range plan.Steps {
		plan.Steps[i].Path = path
	}
	for b.Loop() {
		if err := node.Pin("", pin); err != nil {
			b.Fatal(err)
		}
		node.AddPodLink(pin, "net1")
		cycle(b, runner, attachment(plan))
	}
	each := b.Elapsed() / time.Duration(b.N*steps*2)
	b.ReportMetric(float64(bare.Microseconds()), "µs/exec")
	b.ReportMetric(float64((each - bare).Microseconds()), "µs-overhead/step")
}

// bareExec runs only the plugin process, the way the executor does, and returns its average run time.
func bareExec(b *testing.B, path string) time.Duration {
	const times = 200
	start := time.Now()
	for range times {
		if _, err := (executor.PluginExec{}).Call(context.Background(), path, nil,
			[]string{"PATH=" + os.Getenv("PATH")}); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(start) / times
}

// BenchmarkParallel attaches and detaches sandboxes concurrently, with the journal on disk.
func BenchmarkParallel(b *testing.B) {
	for _, sandboxes := range []int{1, 8, 64} {
		b.Run(fmt.Sprint(sandboxes), func(b *testing.B) {
			node := cnitest.NewNode("up0")
			runner := executor.New(executor.Options{Exec: node, Host: node, Journal: onDisk(b),
				Dirs: []string{cnitest.PluginDir}})
			plan := macvlanPlan(b)
			for b.Loop() {
				var wait sync.WaitGroup
				for i := range sandboxes {
					wait.Go(func() {
						id := fmt.Sprintf("sandbox-%d", i)
						made := executor.NewAttachment(id, executor.Pod{Name: id, UID: id}, []cnichain.Plan{plan})
						made.Pin = "/run/netns/" + id
						cycle(b, runner, made)
					})
				}
				wait.Wait()
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*sandboxes), "µs/sandbox")
		})
	}
}

// BenchmarkMemory attaches and detaches 10,000 sandboxes and reports how much the heap and the journal have grown since
// the first thousand.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		path := filepath.Join(b.TempDir(), "journal.db")
		opened, err := journal.Open(path, clock.RealClock{})
		if err != nil {
			b.Fatal(err)
		}
		chains, err := journal.NewChains(opened.DB)
		if err != nil {
			b.Fatal(err)
		}
		node := cnitest.NewNode("up0", "up1")
		runner := executor.New(executor.Options{Exec: node, Host: node, Journal: chains,
			Dirs: []string{cnitest.PluginDir}})
		plan := benchPlan(b)
		var before uint64
		for i := range 10_000 {
			if i == 1000 {
				before = heap()
			}
			made := attachment(plan)
			made.SandboxID = fmt.Sprintf("sandbox-%d", i)
			cycle(b, runner, made)
			node.ForgetCalls()
		}
		b.ReportMetric(float64(int64(heap()-before)), "B-heap-growth")
		if info, err := os.Stat(path); err == nil {
			b.ReportMetric(float64(info.Size()), "B-journal")
		}
		runtime.KeepAlive(runner)
		_ = opened.Close()
	}
}

func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func benchPlan(b *testing.B) cnichain.Plan {
	b.Helper()
	return compiled(b, linkThenTune, device("link", "up0"))
}

func macvlanPlan(b *testing.B) cnichain.Plan {
	b.Helper()
	shared := device("link", "up0")
	shared.Device.Exclusive = false
	return compiled(b, `
- {name: link, type: macvlan, selector: {cel: "true"}}
- {name: tune, type: tuning, dependOn: [link], config: {mtu: 1400}}
`, shared)
}

func compiled(b *testing.B, steps string, devices ...cnichain.RootDevice) cnichain.Plan {
	b.Helper()
	plan, problems := cnichain.Compile(topologyAndBinding("c", steps, devices...))
	if len(problems) > 0 {
		b.Fatal(problems)
	}
	return *plan
}

// BenchmarkCompile measures how long NodePrepareResources takes to compile a plan.
func BenchmarkCompile(b *testing.B) {
	topology, binding := topologyAndBinding("c", linkThenTune, device("link", "up0"))
	b.ReportAllocs()
	for b.Loop() {
		if _, problems := cnichain.Compile(topology, binding); len(problems) > 0 {
			b.Fatal(problems)
		}
	}
}
