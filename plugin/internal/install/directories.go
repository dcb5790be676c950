package install

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
)

// Directories ensures that the host directories mounted into the driver's container are the directories that are
// currently at these paths on the host. It is not safe for concurrent use.
//
// A mount refers to a directory, not to a path. If the host's directory is removed and recreated, or another file
// system is mounted over it, the container keeps the old directory: the driver would write files that the runtime never
// reads. To mount the new directory, the driver has to enter the host's mount namespace, which it does through the
// host's /proc.
type Directories struct {
	// namespace is the path to the mount namespace of the host's init process; self is the path to the driver's mount
	// namespace.
	namespace, self string
	// required lists the directories that the driver writes to, whether or not they exist on the host.
	required []string
	// mounted contains, by path, the host directories that were mounted when the driver started.
	mounted map[string]mount
}

type mount struct {
	// mode is the mode of the directory, for recreating it if it is missing.
	mode fs.FileMode
	// attributes are the attributes that the mount had when the driver started.
	attributes unix.MountAttr
}

// NewDirectories returns the component for the host whose /proc is at procDir. Repair creates missing required
// directories and checks that they are writable.
func NewDirectories(procDir string, required ...string) *Directories {
	return &Directories{namespace: filepath.Join(procDir, "1", "ns", "mnt"), self: "/proc/self/ns/mnt",
		required: required}
}

// Note records the host directories that are mounted at their own path in the container. It must be called when the
// driver starts, just after the runtime has mounted them. A driver that runs outside a container has no such
// directories.
func (d *Directories) Note() error {
	d.mounted = map[string]mount{}
	if ours, err := os.Stat(d.self); err != nil {
		return fmt.Errorf("cannot find the mount namespace of the driver: %w", err)
	} else if hosts, err := os.Stat(d.namespace); err == nil && os.SameFile(ours, hosts) {
		return nil
	}
	candidates, err := readMounts("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("cannot list the directories of the host: %w", err)
	}
	inContainer := map[string]fs.FileInfo{}
	for path := range candidates {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			inContainer[path] = info
		}
	}
	return d.inHost(func() error {
		for path, ours := range inContainer {
			if hosts, err := os.Stat(path); err == nil && os.SameFile(ours, hosts) {
				d.mounted[path] = mount{mode: ours.Mode().Perm(), attributes: candidates[path]}
			}
		}
		return nil
	})
}

// Repair creates missing directories on the host and remounts directories that are no longer the same as on the host.
// It returns an error for every required directory that cannot be repaired.
func (d *Directories) Repair() error {
	var problems []error
	if len(d.mounted) > 0 {
		problems = append(problems, d.remount())
	}
	for _, path := range d.required {
		if err := os.MkdirAll(path, 0o755); err != nil {
			problems = append(problems, fmt.Errorf("cannot create directory %s: %w; remove any file of that name, and "+
				"make its file system writable", path, err))
			continue
		}
		// On a read-only file system, this fails even for a caller that may write to any file (access(2)).
		if err := unix.Access(path, unix.W_OK); err != nil {
			problems = append(problems, fmt.Errorf("cannot write to directory %s: %w; mount it writable", path, err))
		}
	}
	return errors.Join(problems...)
}

// remount mounts the host directories that differ from those in the driver's container.
func (d *Directories) remount() error {
	ours := map[string]fs.FileInfo{}
	for path := range d.mounted {
		if info, err := os.Stat(path); err == nil {
			ours[path] = info
		}
	}
	trees := map[string]int{}
	err := d.inHost(func() error {
		var problems []error
		for _, path := range slices.Sorted(maps.Keys(d.mounted)) {
			tree, err := open(path, d.mounted[path], ours[path])
			if err != nil {
				problems = append(problems, fmt.Errorf("cannot restore directory %s of the host: %w; make it a "+
					"directory again", path, err))
			}
			if tree >= 0 {
				trees[path] = tree
			}
		}
		return errors.Join(problems...)
	})
	problems := []error{err}
	for _, path := range slices.Sorted(maps.Keys(trees)) {
		if err := attach(trees[path], path); err != nil {
			problems = append(problems, fmt.Errorf("cannot mount directory %s of the host: %w; restart the "+
				"driver's pod", path, err))
		}
	}
	return errors.Join(problems...)
}

// open returns a detached mount of the host's directory, or -1 if the driver already uses that directory. If the
// directory is missing, open creates it. open must be called in the host's mount namespace.
func open(path string, wanted mount, ours fs.FileInfo) (tree int, err error) {
	hosts, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		if err = os.MkdirAll(path, wanted.mode); err == nil {
			hosts, err = os.Stat(path)
		}
	}
	switch {
	case err != nil:
		return -1, err
	case !hosts.IsDir():
		return -1, unix.ENOTDIR
	case ours != nil && os.SameFile(ours, hosts):
		return -1, nil
	}
	tree, err = unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, err
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &wanted.attributes); err != nil {
		return -1, errors.Join(err, unix.Close(tree))
	}
	return tree, nil
}

// attach replaces the mount at path. It detaches the old mount first, because nothing can be mounted over a removed
// directory (DCACHE_CANT_MOUNT). If the driver crashes between these steps, the mount is missing, but the runtime
// creates new mounts for the next driver process.
func attach(tree int, path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err == nil || errors.Is(err, unix.EINVAL) { // EINVAL: nothing is mounted because an earlier attempt failed
		err = unix.MoveMount(tree, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH)
	}
	return errors.Join(err, unix.Close(tree))
}

// Announce makes the runtime reread a directory after a file system has been mounted over it on the host. The runtime
// watches directories with inotify(7), which does not report such a mount: the runtime keeps watching the hidden
// directory. Announce triggers an event in that hidden directory.
func (d *Directories) Announce(path string) error {
	if _, found := d.mounted[path]; !found {
		return nil
	}
	err := d.inHost(func() error {
		path, err := filepath.EvalSymlinks(path)
		if err != nil {
			return err
		}
		var dir, parent unix.Statx_t
		if err := errors.Join(unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_MNT_ID, &dir),
			unix.Statx(unix.AT_FDCWD, filepath.Dir(path), 0, unix.STATX_MNT_ID, &parent)); err != nil ||
			dir.Mnt_id == parent.Mnt_id {
			return err
		}
		// In a copy of the parent directory's mount, subdirectories are not hidden by other mounts.
		tree, err := unix.OpenTree(unix.AT_FDCWD, filepath.Dir(path), unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(tree) }() // nothing was written through it
		// The name must have this suffix, because the CDI library used by the runtimes ignores changes to other files.
		name := filepath.Join(filepath.Base(path), nodeapi.TempPrefix+"changed.json")
		file, err := unix.Openat(tree, name, unix.O_CREAT|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return err
		}
		return errors.Join(unix.Close(file), unix.Unlinkat(tree, name, 0))
	})
	if err != nil {
		return fmt.Errorf("cannot expose directory %s, over which a file system is mounted, to the runtime: %w; "+
			"restart the runtime", path, err)
	}
	return nil
}

// inHost runs a function on a separate thread in the host's mount namespace.
func (d *Directories) inHost(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		// The first thread of a process never exits, and /proc/self refers to it. If this goroutine is locked to that
		// thread, make a nested call, which runs on another thread.
		if unix.Gettid() == unix.Getpid() {
			done <- d.inHost(do)
			runtime.UnlockOSThread()
			return
		}
		// The goroutine never unlocks its thread, so the thread exits with it, and no other goroutine runs on the host.
		done <- func() error {
			namespace, err := unix.Open(d.namespace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err == nil {
				defer func() { _ = unix.Close(namespace) }() // opened for reading only
				// A thread that shares its root directory with others cannot enter a mount namespace (setns(2)).
				if err = unix.Unshare(unix.CLONE_FS); err == nil {
					err = unix.Setns(namespace, unix.CLONE_NEWNS)
				}
			}
			if err != nil {
				return fmt.Errorf("cannot enter the mount namespace of the host at %s: %w; run the driver's container "+
					"privileged, with the host's /proc", d.namespace, err)
			}
			return do()
		}()
	}()
	return <-done
}

// readMounts returns a process's mounts by path, as listed in /proc/<pid>/mountinfo (proc_pid_mountinfo(5)). If several
// mounts have the same path, the last one is the visible one.
func readMounts(path string) (map[string]unix.MountAttr, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	// The kernel escapes white space in this way.
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	mounts := map[string]unix.MountAttr{}
	for line := range strings.Lines(string(data)) {
		// 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
		before, _, found := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if !found || len(fields) < 6 {
			return nil, fmt.Errorf("cannot parse %q", line)
		}
		attributes := unix.MountAttr{Propagation: unix.MS_PRIVATE}
		if slices.Contains(strings.Split(fields[5], ","), "ro") {
			attributes.Attr_set = unix.MOUNT_ATTR_RDONLY
		} else { // the host's mount may currently be read-only
			attributes.Attr_clr = unix.MOUNT_ATTR_RDONLY
		}
		for _, optional := range fields[6:] {
			switch {
			case strings.HasPrefix(optional, "shared:"):
				attributes.Propagation = unix.MS_SHARED
			case strings.HasPrefix(optional, "master:") && attributes.Propagation == unix.MS_PRIVATE:
				attributes.Propagation = unix.MS_SLAVE
			}
		}
		mounts[unescape.Replace(fields[4])] = attributes
	}
	return mounts, nil
}
