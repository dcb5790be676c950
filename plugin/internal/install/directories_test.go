package install

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// container is this process in its own mount namespace. The directory "base" belongs to the host. In the container, it
// is hidden by a tmpfs in which only the container's directories are mounted.
type container struct {
	*testing.T
	*Directories
	base string
}

// inContainer runs the test again in its own mount namespace. In the process that acts as the host, it returns nil.
func inContainer(t *testing.T, names ...string) *container {
	const host = "DRA_TEST_HOST"
	if os.Geteuid() != 0 {
		t.Skip("mounting requires root")
	}
	if os.Getenv(host) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", host, os.Getpid()))
		// Package os/exec makes the mounts in the new namespace private.
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Errorf("%v: %s", err, out)
		}
		return nil
	}
	c := &container{T: t, base: t.TempDir(), Directories: &Directories{self: "/proc/self/ns/mnt",
		namespace: filepath.Join("/proc", os.Getenv(host), "ns", "mnt")}}
	hidden := make([]int, len(names))
	for i, name := range names {
		c.must(os.MkdirAll(c.path(name), 0o750))
		tree, err := unix.OpenTree(unix.AT_FDCWD, c.path(name), unix.OPEN_TREE_CLONE)
		c.must(err)
		hidden[i] = tree
	}
	c.must(unix.Mount("tmpfs", c.base, "tmpfs", 0, ""))
	for i, name := range names {
		c.must(os.MkdirAll(c.path(name), 0o750))
		if name == "programs" { // mounted in the same way as directories with CNI plugins
			c.must(unix.MountSetattr(hidden[i], "", unix.AT_EMPTY_PATH,
				&unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}))
		}
		c.must(unix.MoveMount(hidden[i], "", unix.AT_FDCWD, c.path(name), unix.MOVE_MOUNT_F_EMPTY_PATH))
	}
	t.Cleanup(func() { c.must(unix.Unmount(c.base, unix.MNT_DETACH)) })
	return c
}

func (c *container) path(name string) string { return filepath.Join(c.base, name) }

func (c *container) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// onHost runs a function in the host's mount namespace.
func (c *container) onHost(do func() error) {
	c.Helper()
	c.must(c.inHost(do))
}

// sees fails the test unless files written on the host can be read in the container and vice versa.
func (c *container) sees(name string) {
	c.Helper()
	path := filepath.Join(c.path(name), "probe")
	c.onHost(func() error { return os.WriteFile(path, []byte("host"), 0o600) })
	if data, err := os.ReadFile(path); err != nil || string(data) != "host" {
		c.Errorf("the container reads %q, error %v", data, err)
	}
	c.must(os.WriteFile(path, []byte("container"), 0o600))
	c.onHost(func() error {
		if data, err := os.ReadFile(path); err != nil || string(data) != "container" {
			c.Errorf("the host reads %q, error %v", data, err)
		}
		return os.Remove(path)
	})
}

// mountsAt returns the number of mounts at a path.
func mountsAt(t *testing.T, path string) int {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(data), " "+path+" ")
}

// Whatever happens to a directory on the host, the container ends up with the host's current directory, and no old
// mount is left below the new one.
func TestDirectoriesAreThoseOfTheHost(t *testing.T) {
	c := inContainer(t, "cdi", "state")
	if c == nil {
		return
	}
	c.required = []string{c.path("cdi")}
	c.must(c.Note())
	cdi, elsewhere := c.path("cdi"), c.path("elsewhere")
	for _, event := range []struct {
		name string
		do   func() error
		undo func() error // may be nil
	}{
		{name: "nothing", do: func() error { return nil }},
		{name: "removed", do: func() error { return os.RemoveAll(cdi) }},
		{name: "recreated", do: func() error { return errors.Join(os.RemoveAll(cdi), os.Mkdir(cdi, 0o700)) }},
		{name: "moved away", do: func() error { return os.Rename(cdi, elsewhere) },
			undo: func() error { return os.RemoveAll(elsewhere) }},
		{name: "a symbolic link", do: func() error {
			return errors.Join(os.RemoveAll(cdi), os.Mkdir(elsewhere, 0o700), os.Symlink(elsewhere, cdi))
		}, undo: func() error { return errors.Join(os.Remove(cdi), os.RemoveAll(elsewhere)) }},
		{name: "a file system over it", do: func() error {
			return errors.Join(os.MkdirAll(cdi, 0o700), unix.Mount("tmpfs", cdi, "tmpfs", 0, ""))
		}},
		{name: "another one over that", do: func() error { return unix.Mount("tmpfs", cdi, "tmpfs", 0, "") }},
		{name: "file systems gone", do: func() error {
			return errors.Join(unix.Unmount(cdi, unix.MNT_DETACH), unix.Unmount(cdi, unix.MNT_DETACH))
		}},
		{name: "everything removed", do: func() error {
			return errors.Join(os.RemoveAll(cdi), os.RemoveAll(c.path("state")))
		}},
	} {
		c.Run(event.name, func(*testing.T) {
			c.onHost(event.do)
			for range 2 {
				c.must(c.Repair())
				c.sees("cdi")
				c.sees("state")
			}
			if n := mountsAt(c.T, cdi); n != 1 {
				c.Errorf("got %d mounts, want 1", n)
			}
			if event.undo != nil {
				c.onHost(event.undo)
			}
		})
	}
}

// The runtime is notified about a directory that it watches if, and only if, a file system is mounted over the
// directory.
func TestHiddenDirectoriesAreAnnounced(t *testing.T) {
	c := inContainer(t, "cdi")
	if c == nil {
		return
	}
	c.must(c.Note())
	cdi := c.path("cdi")
	watch, err := unix.InotifyInit1(unix.IN_NONBLOCK)
	c.must(err)
	c.onHost(func() error {
		_, err := unix.InotifyAddWatch(watch, cdi, unix.IN_DELETE)
		return err
	})
	announce := func(want bool) {
		c.Helper()
		c.must(c.Repair())
		c.must(c.Announce(cdi))
		if n, err := unix.Read(watch, make([]byte, 1024)); n > 0 != want {
			c.Errorf("got %d bytes of events, error %v", n, err)
		}
	}
	announce(false)
	c.onHost(func() error { return unix.Mount("tmpfs", cdi, "tmpfs", 0, "") })
	announce(true)
	c.sees("cdi")
	if entries, err := os.ReadDir(cdi); err != nil || len(entries) > 0 {
		c.Errorf("the directory contains %v, error %v, want no entries", entries, err)
	}
	c.onHost(func() error { return unix.Unmount(cdi, unix.MNT_DETACH) })
	announce(false)
	c.must(c.Announce("/elsewhere"))
}

// A directory that cannot be repaired causes an error for as long as the problem lasts, and does not mask other errors.
func TestDirectoriesThatCannotBeRepaired(t *testing.T) {
	c := inContainer(t, "cdi", "state")
	if c == nil {
		return
	}
	c.required = []string{c.path("cdi"), c.path("state")}
	c.must(c.Note())
	cdi := c.path("cdi")
	fails := func(want string) {
		c.Helper()
		if err := c.Repair(); err == nil || !strings.Contains(err.Error(), want) {
			c.Errorf("error = %v, want %q", err, want)
		}
	}
	c.onHost(func() error {
		return errors.Join(os.RemoveAll(cdi), os.WriteFile(cdi, nil, 0o600), os.RemoveAll(c.path("state")))
	})
	fails("cannot restore directory " + cdi + " of the host: not a directory")
	c.sees("state")
	c.onHost(func() error { return os.Remove(cdi) })
	c.must(c.Repair())
	c.sees("cdi")
	c.onHost(func() error { return unix.Mount("tmpfs", cdi, "tmpfs", unix.MS_RDONLY, "") })
	fails("cannot write to directory " + cdi + ": read-only file system; mount it writable")
	c.onHost(func() error { return unix.Mount("", cdi, "", unix.MS_REMOUNT, "") })
	c.must(c.Repair())
	c.sees("cdi")
	c.onHost(func() error { return unix.Unmount(cdi, 0) })
	c.must(c.Repair())
	host := c.namespace
	c.namespace = "/nowhere"
	fails("cannot enter the mount namespace of the host at /nowhere")
	c.namespace = host
	c.must(c.Repair())
}

// A mount keeps its attributes, and directories that belong to the container are not touched.
func TestMountsKeepTheirAttributes(t *testing.T) {
	c := inContainer(t, "programs", "own")
	if c == nil {
		return
	}
	c.onHost(func() error {
		return errors.Join(os.Rename(c.path("own"), c.path("volume")), os.Mkdir(c.path("own"), 0o700))
	})
	c.must(c.Note()) // "own" is not a host directory, like an emptyDir
	c.must(os.WriteFile(filepath.Join(c.path("own"), "mine"), nil, 0o600))
	c.onHost(func() error { return errors.Join(os.RemoveAll(c.path("programs")), os.RemoveAll(c.path("own"))) })
	c.must(c.Repair())
	if _, err := os.Stat(filepath.Join(c.path("own"), "mine")); err != nil {
		c.Error(err)
	}
	c.onHost(func() error { return os.WriteFile(filepath.Join(c.path("programs"), "bridge"), nil, 0o600) })
	if _, err := os.Stat(filepath.Join(c.path("programs"), "bridge")); err != nil {
		c.Error(err)
	}
	if err := os.WriteFile(filepath.Join(c.path("programs"), "evil"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		c.Errorf("error of the write = %v, want EROFS", err)
	}
}

// Outside a container, the driver uses the host's directories directly.
func TestDirectoriesWithoutAContainer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	d := NewDirectories("/proc", dir)
	d.namespace = d.self
	if err := errors.Join(d.Note(), d.Repair()); err != nil || len(d.mounted) > 0 {
		t.Fatal(err, d.mounted)
	}
	if err := errors.Join(os.Remove(dir), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := d.Repair(); err == nil || !strings.Contains(err.Error(), "cannot create directory "+dir) {
		t.Errorf("error = %v, want \"cannot create directory\"", err)
	}
}

func TestReadMounts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mountinfo")
	text := `22 1 0:21 / /proc rw,nosuid - proc proc rw
36 35 98:0 /mnt1 /mnt\0402 ro,noatime master:1 - ext3 /dev/root rw,errors=continue
37 35 98:0 / /run/netns rw shared:5 master:1 - tmpfs tmpfs rw
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	mounts, err := readMounts(path)
	want := map[string]unix.MountAttr{
		"/proc":      {Propagation: unix.MS_PRIVATE, Attr_clr: unix.MOUNT_ATTR_RDONLY},
		"/mnt 2":     {Propagation: unix.MS_SLAVE, Attr_set: unix.MOUNT_ATTR_RDONLY},
		"/run/netns": {Propagation: unix.MS_SHARED, Attr_clr: unix.MOUNT_ATTR_RDONLY},
	}
	if err != nil || fmt.Sprint(mounts) != fmt.Sprint(want) {
		t.Errorf("mounts = %v, error = %v", mounts, err)
	}
	if err := os.WriteFile(path, []byte("22 1 0:21\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readMounts(path); err == nil {
		t.Error("readMounts succeeded, want an error")
	}
}
