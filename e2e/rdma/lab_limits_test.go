package rdma

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
)

// fails checks that a program fails quickly, and returns its output.
func (b *bench) fails(cmd *exec.Cmd) string {
	b.Helper()
	output, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !exit.Exited() {
		b.Fatalf("%q returned %v, want a failure: %s", cmd.Args, err, output)
	}
	return string(output)
}

// RDMA applications lock memory. A process without CAP_IPC_LOCK cannot lock more than its RLIMIT_MEMLOCK, even if it
// runs as root.
func TestLabLockedMemory(t *testing.T) {
	b := newBench(t, exclusive)
	left, right := b.vethPair()
	for _, e := range []*end{left, right} {
		b.must(b.machine().moveDevice(e.device, e.place))
	}
	const user = "setpriv --reuid 1000 --regid 1000 --clear-groups"
	const powerless = "setpriv --bounding-set -all --inh-caps -all"
	const size = 128 << 10
	for _, test := range []struct {
		name, limit, identity string
		refused               bool
	}{
		{name: "user with 64 KiB", limit: "65536", identity: user, refused: true},
		{name: "user without limit", limit: "unlimited", identity: user},
		{name: "root with 64 KiB", limit: "65536"},
		{name: "root with 64 KiB and no capabilities", limit: "65536", identity: powerless, refused: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			part := &bench{b.With(t)}
			as := func(e *end) []string {
				args := append([]string{"prlimit", "--memlock=" + test.limit + ":" + test.limit},
					strings.Fields(test.identity)...)
				return append(args, pingPong(e, size)...)
			}
			if !test.refused {
				client := &end{place: &place{part, part.PodAt(right.Path)}, device: right.device}
				client.converse(left, pingPong(left, size), append(as(right), left.address))
				return
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if text := part.fails(right.command(ctx, as(right)...)); !strings.Contains(text, "Couldn't register MR") {
				t.Errorf("the program failed with a different error: %s", text)
			}
		})
	}
}

// The rdma cgroup controller limits how many resources of an RDMA device processes can use. It identifies the device by
// name.
func TestLabCgroupLimits(t *testing.T) {
	b := newBench(t, "")
	b.AddLink(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "plain0"}})
	b.machine().addDevice("rxe0", "plain0")
	const root = "/sys/fs/cgroup"
	group := filepath.Join(root, "limited")
	b.must(os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+rdma"), 0))
	b.must(os.Mkdir(group, 0o755))
	b.Cleanup(func() { b.must(os.Remove(group)) })
	folder, err := os.Open(group)
	b.must(err)
	defer func() { _ = folder.Close() }() // used only to identify the cgroup
	b.must(os.WriteFile(filepath.Join(group, "rdma.max"), []byte("rxe0 hca_handle=1 hca_object=2"), 0))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := b.machine().command(ctx, "ibv_rc_pingpong", "-d", "rxe0", "-g", "0")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(folder.Fd())}
	if text := b.fails(cmd); !strings.Contains(text, "Couldn't create CQ") {
		b.Errorf("the program failed with a different error: %s", text)
	}
	limits, err := os.ReadFile(filepath.Join(group, "rdma.max"))
	b.must(err)
	if have, want := strings.TrimSpace(string(limits)), "rxe0 hca_handle=1 hca_object=2"; have != want {
		b.Errorf("limits = %q, want %q", have, want)
	}
}
