package netdev

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/cnichain/host"
)

// BenchmarkAttachments attaches a veth to a pod and detaches it, using this plugin as built for a release, and
// host-device. An operation consists of both calls, including their processes. add-ms and del-ms are medians; start-ms
// is the median for a process that only prints its versions.
func BenchmarkAttachments(b *testing.B) {
	if os.Getuid() != 0 {
		b.Skip("needs root: makes network namespaces and mounts")
	}
	program := filepath.Join(b.TempDir(), Name)
	build := exec.CommandContext(b.Context(), "go", "build", "-ldflags", "-s -w", "-o", program,
		"../../dra-network-cni")
	if output, err := build.CombinedOutput(); err != nil {
		b.Fatalf("cannot build the plugin: %v\n%s", err, output)
	}
	for name, path := range map[string]string{Name: program,
		"host-device": filepath.Join(os.Getenv("CNI_PLUGIN_DIR"), "host-device")} {
		b.Run(name, func(b *testing.B) {
			if _, err := os.Stat(path); err != nil {
				b.Skipf("needs the reference CNI plugins in CNI_PLUGIN_DIR: %v", err)
			}
			ended := make(chan struct{})
			go func() { // on its own thread, which exits with the goroutine
				defer close(ended)
				runtime.LockOSThread()
				benchmarkPlugin(b, path)
			}()
			<-ended
		})
	}
}

// becomeMachine moves the thread into its own namespaces.
func becomeMachine() error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNET | unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil {
		return err
	}
	// All variants use the same path, since creating a namespace requires another thread, which is not measured.
	return os.MkdirAll("/run/netns", 0o750)
}

func benchmarkPlugin(b *testing.B, program string) {
	pod := filepath.Join(os.TempDir(), fmt.Sprintf("netdev-bench-%d", os.Getpid()))
	if err := host.NewNamespace(pod); err != nil {
		b.Error(err)
		return
	}
	defer func() { _ = unix.Unmount(pod, unix.MNT_DETACH); _ = os.Remove(pod) }()
	if err := becomeMachine(); err != nil {
		b.Error(err)
		return
	}
	t := newBench(b, pod)
	t.program = program
	t.veth("up0", 4001)
	times := map[string][]time.Duration{}
	timed := func(command string) {
		start := time.Now()
		if _, err := t.call(order{command: command, ifName: "net1", netns: pod, version: "1.0.0",
			config: up0}); err != nil {
			b.Error(err)
		}
		times[command] = append(times[command], time.Since(start))
	}
	for b.Loop() {
		timed("ADD")
		timed("DEL")
		timed("VERSION")
	}
	for command, unit := range map[string]string{"ADD": "add-ms", "DEL": "del-ms", "VERSION": "start-ms"} {
		slices.Sort(times[command])
		b.ReportMetric(float64(times[command][len(times[command])/2].Microseconds())/1000, unit)
	}
	if links := t.links(t.host); len(links) != 1 || !strings.HasPrefix(links[0], "up0 ") {
		b.Errorf("the host has links %q, want only up0", links)
	}
}
