package sriov

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/host"
	testbench "github.com/dra-networking/dra-network-driver/e2e/internal/bench"
	"github.com/dra-networking/dra-network-driver/e2e/internal/kubenode"
)

// workerVariable is the environment variable with the orders for a driver process.
const workerVariable = "SRIOV_WORKER"

// orders is the task for a driver process: attach a virtual function, or roll back what an earlier process left behind.
type orders struct {
	Journal string
	Dirs    []string
	VF      string // PCI address; empty for a rollback
	Pod     string // path of its namespace
}

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
	d, err := testbench.Open(o.Journal, executor.Options{Dirs: o.Dirs, StepTimeout: patience})
	if err != nil {
		return err
	}
	if o.VF != "" {
		plan, err := d.Plan("crash", `[{name: nic, type: sriov, config: {vlan: 77, trust: "on"}}]`,
			device("nic", o.VF))
		if err != nil {
			return err
		}
		return d.Executor.Add(ctx, testbench.NewAttachment("crash", plan), o.Pod, "node")
	}
	if err := (executor.PluginExec{Lock: o.Journal + ".cni"}).AwaitEarlier(ctx, patience); err != nil {
		return err
	}
	if len(d.Left) != 1 {
		return fmt.Errorf("the journal has %d attachments, want one", len(d.Left))
	}
	for _, left := range d.Left {
		err = errors.Join(err, d.Executor.Del(ctx, left))
	}
	return err
}

func (o orders) process() *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), workerVariable+"="+text(o))
	return cmd
}

// dieInTheMiddle performs the sriov plugin's ADD up to the point at which the function, with changed settings, address
// and name, is in a temporary namespace that only this process references. Then it kills the driver and itself.
func dieInTheMiddle() error {
	var config struct{ DeviceID string }
	data, err := io.ReadAll(os.Stdin)
	if err == nil {
		err = json.Unmarshal(data, &config)
	}
	if err != nil {
		return err
	}
	link, err := testbench.FindLink(config.DeviceID)
	if err != nil {
		return err
	}
	pf, err := testbench.FindLink(pf0)
	if err != nil {
		return err
	}
	between, err := ns.TempNetNS()
	if err != nil {
		return err
	}
	err = errors.Join(
		netlink.LinkSetVfVlan(pf, 0, 77), netlink.LinkSetVfTrust(pf, 0, true),
		netlink.LinkSetDown(link), netlink.LinkSetHardwareAddr(link, net.HardwareAddr{2, 0, 0, 0, 0, 0x99}),
		netlink.LinkSetNsFd(link, int(between.Fd())),
		between.Do(func(ns.NetNS) error { return netlink.LinkSetName(link, os.Getenv("CNI_IFNAME")) }),
	)
	if err != nil {
		return err
	}
	_ = unix.Kill(os.Getppid(), unix.SIGKILL)
	_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	select {}
}

// otherPlugin is the file name of the real plugin, which handles all other commands. The real plugin is in the same
// directory as this binary, which uses the plugin's usual name.
const otherPlugin = "other"

// plug implements a CNI plugin that dies in ADD.
func plug() int {
	if os.Getenv("CNI_COMMAND") == "ADD" {
		fmt.Fprintln(os.Stderr, dieInTheMiddle())
		return 1
	}
	err := unix.Exec(filepath.Join(filepath.Dir(os.Args[0]), otherPlugin), os.Args, os.Environ())
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// A driver is killed while its plugin has the virtual function in a temporary namespace. The kernel returns the
// function to the host under the name intended for the pod. The next driver process finds the function and restores all
// of its properties.
func TestKilledInTheMiddleOfAMove(t *testing.T) {
	b := newBench(t, 1)
	before := b.functionState()
	deadly := t.TempDir()
	self, err := os.Executable()
	b.must(err)
	b.must(os.Symlink(self, filepath.Join(deadly, "sriov")))
	other, err := (executor.PluginExec{}).FindInPath("sriov", cniDirs())
	b.must(err)
	b.must(os.Symlink(other, filepath.Join(deadly, otherPlugin)))
	o := orders{Journal: filepath.Join(t.TempDir(), "journal.db"), Dirs: append([]string{deadly}, cniDirs()...),
		VF: b.VF(pf0, 0), Pod: cnitest.NewPod(t, "crash")}
	t.Cleanup(func() { _ = host.Linux{}.Unpin("/run/netns/dra-crash") })
	output, err := o.process().CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Success() || exit.ExitCode() != -1 {
		t.Fatalf("the driver was not killed: %v: %s", err, output)
	}
	b.eventually("function that the kernel has put on the host", func() error {
		links, err := os.ReadDir(testbench.SysPCI(o.VF, "net"))
		if err == nil && len(links) == 0 {
			err = kubenode.ErrStill
		}
		return err
	})
	if after := b.functionState(); after[0] == before[0] {
		t.Fatal("the plugin changed nothing, so there is nothing to recover")
	}
	o.VF = ""
	output, err = o.process().CombinedOutput()
	if err != nil {
		t.Fatalf("the next driver failed: %v: %s", err, output)
	}
	b.expect(before)
	b.empty()
}
