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

// machineVariable is the environment variable that tells a test process that it is inside.
const machineVariable = "CNITEST_MACHINE"

// OnMachine says whether the test runs on a machine of its own: with its own network namespace, mounts, sysfs, and an
// empty /run and /var/lib. Called outside, it runs the test again there as a process and returns false: the caller
// returns then. Whatever the test leaves or kills vanishes with the process. Machines share processes, memory and /tmp,
// and run in parallel, since tests of namespaces wait for the kernel most of the time. Environment has further
// variables of the process, each as NAME=VALUE. Only for tests that are not subtests. Skips without root.
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
		t.Errorf("on a machine of its own: %v\n%s", err, text)
	case strings.Contains(text, "--- SKIP: "+t.Name()+" "):
		t.Skip(text)
	default:
		t.Log(text)
	}
	return false
}

// furnish mounts what a machine has.
func furnish(t *testing.T) {
	t.Helper()
	for _, mount := range []struct{ kind, path string }{{"sysfs", "/sys"}, {"tmpfs", "/run"}, {"tmpfs", "/var/lib"}} {
		if err := unix.Mount(mount.kind, mount.path, mount.kind, 0, ""); err != nil {
			t.Skipf("needs to mount: %s on %s: %v", mount.kind, mount.path, err)
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

// NewPod makes a network namespace with an eth0, as a runtime does for a pod, and returns its path. The other end of
// eth0 is on the host. It is removed at the end of the test, or with RemovePod.
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
		t.Fatalf("cannot make eth0 of pod %s: %v", name, err)
	}
	return path
}

// RemovePod lets go of a pod's namespace, as a runtime does at its end. The namespace lives on while it is pinned.
func RemovePod(path string) {
	_ = unix.Unmount(path, unix.MNT_DETACH)
	_ = os.Remove(path)
}

// RealPlugins returns the directory of the reference CNI plugins, from CNI_PLUGIN_DIR. Without one the test fails, and
// is skipped with -short: go test prints ok for a package whose tests are all skipped.
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
