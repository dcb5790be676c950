package cnitest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/cnichain/host"
)

// machineVariable is the environment variable that marks a test process as running on its own machine.
const machineVariable = "CNITEST_MACHINE"

// OnMachine reports whether the test is running on its own machine, that is, with its own network namespace, mounts and
// sysfs, and with an empty /run and /var/lib. If not, OnMachine reruns the test in a process on such a machine and
// returns false; the caller must then return. Everything that the test leaves behind or kills goes away with that
// process. Machines share processes, memory and /tmp. They run in parallel, since namespace tests spend most of their
// time waiting for the kernel. environment lists additional environment variables for the process, as NAME=VALUE.
// OnMachine must not be called in subtests. Without root privileges, it skips the test.
func OnMachine(t *testing.T, environment ...string) bool {
	t.Helper()
	if os.Getenv(machineVariable) == t.Name() {
		furnish(t)
		return true
	}
	if os.Getuid() != 0 {
		t.Skip("needs root: makes network namespaces and mounts")
	}
	t.Parallel()
	arguments := []string{"-test.run=^" + regexp.QuoteMeta(t.Name()) + "$", "-test.v", "-test.count=1",
		"-test.short=" + strconv.FormatBool(testing.Short())}
	if deadline, limited := t.Deadline(); limited {
		arguments = append(arguments, "-test.timeout="+time.Until(deadline).String())
	}
	inside := exec.Command("/proc/self/exe", arguments...)
	inside.Env = slices.Concat(os.Environ(), environment, []string{machineVariable + "=" + t.Name(),
		"GORACE=atexit_sleep_ms=0"}) // the race detector sleeps 1 s at every exit
	inside.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	var output bytes.Buffer
	inside.Stdout, inside.Stderr = &output, &output
	err := inside.Run()
	text := strings.TrimSpace(output.String())
	switch {
	case err != nil:
		t.Errorf("the test failed in its own namespaces: %v\n%s", err, text)
	case strings.Contains(text, "--- SKIP: "+t.Name()+" "):
		t.Skip(text)
	default:
		t.Log(text)
	}
	return false
}

// furnish mounts the file systems of the test's machine.
func furnish(t *testing.T) {
	t.Helper()
	for _, mount := range []struct{ kind, path string }{{"sysfs", "/sys"}, {"tmpfs", "/run"}, {"tmpfs", "/var/lib"}} {
		if err := unix.Mount(mount.kind, mount.path, mount.kind, 0, ""); err != nil {
			t.Skipf("needs permission to mount %s on %s: %v", mount.kind, mount.path, err)
		}
	}
	if err := os.MkdirAll("/run/netns", 0o755); err != nil {
		t.Fatal(err)
	}
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// NewPod creates a network namespace with an eth0 interface, as a runtime does for a pod, and returns the path to the
// namespace. The other end of eth0 is on the host. The namespace is removed at the end of the test, or by RemovePod.
func NewPod(t *testing.T, name string) (path string) {
	t.Helper()
	path = filepath.Join("/run/netns", name)
	t.Cleanup(func() { RemovePod(path) })
	if err := host.NewNamespace(path); err != nil {
		t.Fatal(err)
	}
	eth0 := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "pod" + name}, PeerName: "eth0"}
	namespace, err := netns.GetFromPath(path)
	if err == nil {
		defer func() { _ = namespace.Close() }()
		eth0.PeerNamespace = netlink.NsFd(namespace)
		err = netlink.LinkAdd(eth0)
	}
	if err != nil {
		t.Fatalf("cannot create eth0 of pod %s: %v", name, err)
	}
	return path
}

// RemovePod releases a pod's namespace, as a runtime does when the pod terminates. The namespace continues to exist as
// long as it is pinned.
func RemovePod(path string) {
	_ = unix.Unmount(path, unix.MNT_DETACH)
	_ = os.Remove(path)
}

// RealPlugins returns the directory with the reference CNI plugins, which is the value of CNI_PLUGIN_DIR. If the
// variable is not set, the test fails rather than being skipped, because go test prints ok for a package whose tests
// are all skipped. With -short, the test is skipped.
func RealPlugins(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("CNI_PLUGIN_DIR")
	if _, err := os.Stat(filepath.Join(dir, "macvlan")); dir == "" || err != nil {
		if testing.Short() {
			t.Skip("skipped with -short: CNI_PLUGIN_DIR is not set")
		}
		t.Fatalf("cannot find the reference CNI plugins in CNI_PLUGIN_DIR (%q): run make test-kernel, or set it to "+
			"their directory; with -short these tests are skipped", dir)
	}
	return dir
}
