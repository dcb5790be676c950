package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// overlays returns the host directories where the node needs its own files. An overlay shows the existing files but
// stores all writes elsewhere, so nothing is ever created on the host, not even a mount point. On any node, the
// kubelet, containerd and network add-ons write to these directories. The node also uses the host's /usr, but only for
// reading.
func overlays() []string { return []string{"/etc", "/opt", "/var/lib"} }

// removed and covered return the host directories into which another container runtime or its plugins may have put
// files: NRI and CNI plugins, network configurations, and CDI specs. On a node, these directories start out empty, so
// that tests do not depend on software installed on the host. Directories that nodes write to are removed in the
// overlays, whose writable layer records the removal.
func removed() []string {
	return []string{"/etc/cdi", "/etc/cni", "/etc/containers", "/etc/crio", "/etc/nri", "/opt/cni", "/opt/nri"}
}

func covered() []string { return []string{"/usr/lib/cni", "/usr/libexec/cni", "/var/lib/rancher"} }

// sysctls returns the kernel settings that the kubelet writes and that are not namespaced, with the values that the
// kubelet expects. The kubelet sets them when it starts (setupKernelTunables), and fails if it cannot. Since they are
// global, the node replaces them with regular files; otherwise, the kubelet would change the host. If the settings
// already have these values, the kubelet usually does not write them.
func sysctls() map[string]string {
	return map[string]string{
		"vm/overcommit_memory":      "1",
		"vm/panic_on_oom":           "0",
		"kernel/panic":              "10",
		"kernel/panic_on_oops":      "1",
		"kernel/keys/root_maxkeys":  "1000000",
		"kernel/keys/root_maxbytes": "25000000",
	}
}

// mountAll creates the node's view of the file system. All mounts are private until the end. Only then is the root made
// shared, which mount propagation to pods requires, in a peer group that does not include the host. The order matters:
// /proc must show the new PID namespace before any process is looked up. Later mounts need the private in-memory file
// system. Mounts that hide the host come before mounts inside them. Files come last, since they are in the overlays. A
// mount that is created while the root is still shared with the host would also appear on the host
// (mount_namespaces(7)).
func mountAll(s Spec) error {
	if err := mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	private := filepath.Join(s.RunDir, PrivateDir)
	if err := mount("tmpfs", private, "tmpfs", 0, "mode=700"); err != nil {
		return err
	}
	for _, step := range []func() error{
		mountSys,
		func() error { return keeping(s.Keep, func() error { return s.coverHost(private) }) },
		func() error { return mountState(s) },
		func() error { return s.hideState(private) },
		func() error { return mountCNI(s.CNIDirs, s.disk(private)) },
		func() error { return mountSysctls(private, s.settings()) },
		func() error { return writeFiles(s.Files) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}

// mountSys mounts a sysfs for the new network namespace, so that /sys/class/net shows the node's interfaces instead of
// the host's, and restores the cgroup mounts that the new sysfs covers. A sysfs always shows the network namespace in
// which it was mounted, regardless of who reads it.
func mountSys() error {
	const cgroups = "/sys/fs/cgroup"
	return keeping([]string{cgroups}, func() error {
		return mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	})
}

// keeping calls cover, which hides dirs, and then bind-mounts dirs, with all mounts below them, back at their original
// paths. A descriptor opened with O_PATH still refers to the covered directory, and its path in /proc/self/fd can be
// passed to mount(2). If a directory's path no longer exists by then, keeping creates it in the covering mount.
func keeping(dirs []string, cover func() error) error {
	fds := make([]int, 0, len(dirs))
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	for _, d := range dirs {
		fd, err := unix.Open(d, unix.O_PATH|unix.O_CLOEXEC|unix.O_DIRECTORY, 0)
		if err != nil {
			return fmt.Errorf("cannot open %s: %w", d, err)
		}
		fds = append(fds, fd)
	}
	if err := cover(); err != nil {
		return err
	}
	for i, d := range dirs {
		if err := bindTree(fds[i], d); err != nil {
			return err
		}
	}
	return nil
}

func bindTree(fd int, target string) error {
	if _, err := os.Stat(target); errors.Is(err, os.ErrNotExist) {
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
	}
	return mount(fmt.Sprintf("/proc/self/fd/%d", fd), target, "", unix.MS_BIND|unix.MS_REC, "")
}

// disk returns the directory in which overlays store writes. For a single node, it is in memory. For a node in a
// multi-node cluster, it is in the run directory, which survives reboots. The in-memory file system disappears with the
// mount namespace, so a single node leaves nothing behind.
func (s Spec) disk(private string) string {
	if s.Member == nil {
		return private
	}
	return filepath.Join(s.RunDir, DiskDir)
}

// coverHost hides the host's run-time state, and lets the node write to the host's configuration directories without
// changing the host. A member runs inside the machine that has the wire, where overlays already cover these
// directories. The kernel stacks at most two file systems (FILESYSTEM_MAX_STACK_DEPTH), and the member's containers
// need one of these levels. The member's overlays are therefore based on the host's own directories, which the machine
// that has the wire bind-mounts below HostDir before it covers them.
func (s Spec) coverHost(private string) error {
	host := "/"
	if s.Member != nil {
		host = s.Member.Host
	}
	first := !exists(upperOf(s.disk(private), overlays()[0]))
	for _, d := range overlays() {
		if s.Wire != "" { // the kernel stacks at most two overlays, and containers need the second
			if err := bindTo(d, filepath.Join(private, HostDir, d)); err != nil {
				return err
			}
		}
		if err := overlay(s.disk(private), d, filepath.Join(host, d)); err != nil {
			return err
		}
	}
	if err := hideSoftware(first); err != nil {
		return err
	}
	for _, d := range []string{"/run", "/var/log"} {
		if err := mount("tmpfs", d, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
			return err
		}
	}
	return makeFolders()
}

// hideSoftware hides the directories returned by removed and covered. After the first boot, the removed directories
// contain only the node's own files, which are kept.
func hideSoftware(firstBoot bool) error {
	if firstBoot {
		for _, d := range removed() {
			if err := os.RemoveAll(d); err != nil {
				return err
			}
		}
	}
	for _, d := range covered() {
		if !exists(d) {
			continue
		}
		if err := mount("tmpfs", d, "tmpfs", unix.MS_RDONLY, "mode=755"); err != nil {
			return err
		}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// hideState gives the node its own directory for CNI plugin state: leases in the host's directory are for other pods,
// and would leave fewer addresses for the node.
func (s Spec) hideState(private string) error {
	kept := filepath.Join(s.disk(private), "cni-state")
	if err := os.MkdirAll(kept, 0o755); err != nil {
		return err
	}
	return mount(kept, "/var/lib/cni", "", unix.MS_BIND, "")
}

func bindTo(source, target string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	return mount(source, target, "", unix.MS_BIND, "")
}

// makeFolders creates the directories that kubelet, containerd and deployed components expect.
func makeFolders() error {
	for _, d := range []string{
		"/run/lock", "/run/netns", "/run/nri", "/run/cdi", "/etc/cdi", "/etc/cni/net.d", "/opt/cni/bin",
		"/var/lib/kubelet", "/var/lib/containerd", "/var/lib/containers", "/var/lib/cni", "/var/log/pods",
		"/var/log/containers",
	} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// mountState uses bind mounts to store directories that grow large on the disk with the run directory. containerd's
// snapshots are overlays themselves, so they cannot be stored in an overlay, and images would not fit in memory.
func mountState(s Spec) error {
	for source, target := range map[string]string{
		filepath.Join(s.RunDir, KubeletDir):    "/var/lib/kubelet",
		filepath.Join(s.RunDir, ContainerdDir): "/var/lib/containerd",
		filepath.Join(s.RunDir, ContainersDir): "/var/lib/containers", // of CRI-O
	} {
		if err := mount(source, target, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	for _, d := range []string{"plugins", "plugins_registry"} {
		if err := os.MkdirAll(filepath.Join("/var/lib/kubelet", d), 0o750); err != nil {
			return err
		}
	}
	return nil
}

// mountCNI combines dirs into one directory, which is writable because network add-ons install their plugins there. As
// with the lower layers of an overlay file system, files in earlier directories hide files with the same name in later
// ones.
func mountCNI(dirs []string, disk string) error {
	return overlay(disk, "/opt/cni/bin", dirs...)
}

// overlay mounts a writable view of the lower directories at target. Writes are stored below the directory disk. The
// upper and work directories must be on the same file system; only the kernel uses the work directory. After a reboot,
// a member's earlier writes are visible again.
func overlay(disk, target string, lower ...string) error {
	upper := upperOf(disk, target)
	work := filepath.Join(filepath.Dir(upper), "work")
	for _, d := range []string{upper, work} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	return mount("overlay", target, "overlay", 0, overlayOptions(lower, upper, work))
}

// upperOf returns the directory that stores the writes to the overlay at target.
func upperOf(disk, target string) string {
	return filepath.Join(disk, strings.ReplaceAll(strings.Trim(target, "/"), "/", "-"), "upper")
}

// overlayOptions builds the option string. Colons and commas in paths would terminate the value.
func overlayOptions(lower []string, upper, work string) string {
	escape := strings.NewReplacer(`\`, `\\`, `:`, `\:`, `,`, `\,`)
	escaped := make([]string, 0, len(lower))
	for _, l := range lower {
		escaped = append(escaped, escape.Replace(l))
	}
	return "lowerdir=" + strings.Join(escaped, ":") + ",upperdir=" + escape.Replace(upper) + ",workdir=" +
		escape.Replace(work)
}

// settings returns the settings below /proc/sys that are replaced with files on the node.
func (s Spec) settings() map[string]string {
	all := sysctls()
	if s.Member != nil {
		all[bootSetting] = s.Member.BootID
	}
	return all
}

// mountSysctls bind-mounts files over existing settings, so that writes to a setting go to the file and never reach the
// kernel.
func mountSysctls(private string, settings map[string]string) error {
	for name, value := range settings {
		target := filepath.Join("/proc/sys", name)
		if _, err := os.Stat(target); errors.Is(err, os.ErrNotExist) {
			continue // the kernel does not have this setting
		}
		file := filepath.Join(private, strings.ReplaceAll(name, "/", "."))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := mount(file, target, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}

// writeFiles writes the configuration files. It replaces symbolic links instead of following them, because
// /etc/resolv.conf might point into /run, which is now covered.
func writeFiles(files map[string]string) error {
	for name, content := range files {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("cannot replace %s: %w", name, err)
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// mount calls mount(2); its errors include source and target. If source is empty, mount changes the propagation type of
// the mount at target.
func mount(source, target, kind string, flags uintptr, options string) error {
	if err := unix.Mount(source, target, kind, flags, options); err != nil {
		if source == "" {
			source = "(change)"
		}
		return fmt.Errorf("cannot mount %s %s at %s (options %q): %w", kind, source, target, options, err)
	}
	return nil
}
