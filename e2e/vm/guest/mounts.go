package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// mount is one mount. Its directory is created if it is missing.
type mount struct {
	source, path, kind, options string
	flags                       uintptr
}

// mountAll creates mounts in order, because later mount points may be inside earlier mounts.
func mountAll(mounts []mount) error {
	for _, m := range mounts {
		if err := os.MkdirAll(m.path, 0o755); err != nil {
			return fmt.Errorf("cannot make %s: %w", m.path, err)
		}
		if err := unix.Mount(m.source, m.path, m.kind, m.flags, m.options); err != nil {
			return fmt.Errorf("cannot mount %s %s on %s: %w", m.kind, m.source, m.path, err)
		}
	}
	return nil
}

// shared mounts a directory from the host. Read-only directories never change, so the machine may cache them. Changes
// in a writable directory are immediately visible on both sides. Read-only access is enforced by QEMU; the mount option
// affects only what the kernel assumes. The large msize saves round trips, each of which is an exit to QEMU.
func shared(f Folder) mount {
	m := mount{source: f.Tag, path: f.Path, kind: "9p",
		options: "trans=virtio,version=9p2000.L,msize=524288,cache=loose", flags: unix.MS_RDONLY}
	if f.Writable {
		m.options, m.flags = "trans=virtio,version=9p2000.L,msize=524288,cache=none", 0
	}
	return m
}

// furnish replaces the initial file system with the real root: an in-memory overlay on top of the unpacked packages. It
// first mounts /dev and /proc, then loads the modules that 9p and overlay need, mounts the overlay, and finally moves
// /dev and /proc to this root and switches to it. The mounts can use only files that are in the initial file system or
// are created here, because no other files exist yet.
func furnish() error {
	const root = "/machine"
	err := mountAll([]mount{
		{source: "dev", path: "/dev", kind: "devtmpfs"},
		{source: "proc", path: "/proc", kind: "proc"},
	})
	if err != nil {
		return err
	}
	if err := loadEarlyModules(); err != nil {
		return err
	}
	err = mountAll([]mount{
		shared(Folder{Tag: RootTag, Path: "/lower"}),
		{source: "tmpfs", path: "/upper", kind: "tmpfs", options: "mode=755"},
	})
	if err != nil {
		return err
	}
	for _, dir := range []string{"/upper/files", "/upper/work"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	err = mountAll([]mount{
		{source: "overlay", path: root, kind: "overlay",
			options: "lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work"},
		{source: "/dev", path: root + "/dev", flags: unix.MS_MOVE},
		{source: "/proc", path: root + "/proc", flags: unix.MS_MOVE},
	})
	if err != nil {
		return err
	}
	if err := enter(root); err != nil {
		return fmt.Errorf("cannot make %s the root: %w", root, err)
	}
	return mountAll([]mount{
		{source: "sys", path: "/sys", kind: "sysfs"},
		{source: "cgroup2", path: "/sys/fs/cgroup", kind: "cgroup2"},
		{source: "devpts", path: "/dev/pts", kind: "devpts"},
		{source: "tmpfs", path: "/dev/shm", kind: "tmpfs"},
		{source: "tmpfs", path: "/run", kind: "tmpfs", options: "mode=755"},
		{source: "tmpfs", path: "/tmp", kind: "tmpfs"},
		// These directories must not be in an overlay, because containers could not create their own overlays there.
		{source: "tmpfs", path: "/var/lib", kind: "tmpfs", options: "mode=755"},
	})
}

// enter does what switch_root does: the initial file system cannot be unmounted, so the new root is mounted over it.
// pivot_root cannot be used, because the kernel runs vminit from its rootfs, which pivot_root does not support
// (pivot_root(2)).
func enter(root string) error {
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return err
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return os.Chdir("/")
}

// loadEarlyModules loads the modules that are required to mount the root file system. The files have numbered names in
// dependency order, because modprobe is not available yet.
func loadEarlyModules() error {
	modules, err := os.ReadDir(EarlyModules)
	if err != nil {
		return err
	}
	for _, module := range modules { // sorted by name
		if err := loadModule(filepath.Join(EarlyModules, module.Name())); err != nil {
			return err
		}
	}
	return nil
}

// loadModule loads the kernel module in a file, unless the kernel already has a module with that name.
func loadModule(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	err = unix.FinitModule(int(file.Fd()), "", 0)
	_ = file.Close() // used only for reading
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("cannot load kernel module %s: %w", path, err)
	}
	return nil
}

// smallFiles writes the files in /etc that programs expect.
func smallFiles() error {
	for path, text := range map[string]string{
		"/etc/hostname":   "vm\n",
		"/etc/hosts":      "127.0.0.1 localhost vm\n::1 localhost\n",
		"/etc/machine-id": "0123456789abcdef0123456789abcdef\n",
		"/etc/passwd":     "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
		"/etc/group":      "root:x:0:\nnogroup:x:65534:\n",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return os.MkdirAll("/root", 0o700)
}
