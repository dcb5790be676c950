package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
)

// HelperPlugins returns the names of the CNI plugins that the helper binary contains.
func HelperPlugins() []string { return []string{"netdev"} }

// helperMode is the mode of the helper binary.
const helperMode fs.FileMode = 0o755

// Helper installs the helper binary on the host. It is not safe for concurrent use.
type Helper struct {
	source, dir string
	// verified is the state of the binary that was compared and run last.
	verified unix.Stat_t
}

// NewHelper returns the component that installs the helper binary in dir. The binary must be in the directory of the
// driver's own binary.
func NewHelper(dir string) (*Helper, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot find the helper binary: %w", err)
	}
	return &Helper{source: filepath.Join(filepath.Dir(executable), nodeapi.HelperName), dir: dir}, nil
}

// Install writes the helper binary to its directory on the host, where the runtime runs it as a hook and containers
// never see it, and links the names of its plugins to it. It leaves correct files unchanged, because a hook may be
// running the binary, and then costs only a few system calls. It can therefore be called repeatedly.
//
// Everything in the directory belongs to the driver, so any file that is in the way is removed. This includes symbolic
// links, whose target on the host may differ from the target in the driver's container.
func (h *Helper) Install(ctx context.Context) error {
	if err := makeDir(h.dir); err != nil {
		return fmt.Errorf("cannot install the helper binary: %w", err)
	}
	target := filepath.Join(h.dir, nodeapi.HelperName)
	now := state(target)
	if now != h.verified || now == (unix.Stat_t{}) {
		if err := h.write(target); err != nil {
			return fmt.Errorf("cannot install the helper binary: %w", err)
		}
	}
	for _, name := range HelperPlugins() {
		if err := linkTo(nodeapi.HelperName, filepath.Join(h.dir, name)); err != nil {
			return fmt.Errorf("cannot install the CNI plugin %s: %w", name, err)
		}
	}
	// The state of the file does not include this: the file system may be remounted without the right to execute.
	if err := unix.Access(target, unix.X_OK); err != nil {
		return notRunnable(h.dir, err)
	}
	if now := state(target); now != h.verified {
		var refused *exec.ExitError
		// Without its argument the hook fails, which shows that it runs.
		if err := exec.CommandContext(ctx, target, nodeapi.GateHookCommand).Run(); !errors.As(err, &refused) {
			return notRunnable(h.dir, err)
		}
		h.verified = now
	}
	return nil
}

func notRunnable(dir string, err error) error {
	return fmt.Errorf("cannot run the helper binary: %w; mount the file system of %s without noexec", err, dir)
}

// write replaces the binary unless it is a regular executable file with the same content as the driver's.
func (h *Helper) write(target string) error {
	data, err := os.ReadFile(h.source)
	if err != nil {
		return fmt.Errorf("%w; it must be in the directory of the driver's binary", err)
	}
	info, err := os.Lstat(target)
	if err == nil && info.Mode() == helperMode {
		if old, err := os.ReadFile(target); err == nil && bytes.Equal(old, data) {
			return nil
		}
	}
	if err == nil && info.IsDir() {
		if err := os.RemoveAll(target); err != nil {
			return err
		}
	}
	return replaceProgram(target, data)
}

// state identifies a file and its content: every write, and every change of its mode, changes it. It is zero for a file
// that does not exist. It omits the access time, which the kernel changes when the file is executed.
func state(path string) unix.Stat_t {
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil {
		return unix.Stat_t{}
	}
	stat.Atim = unix.Timespec{}
	return stat
}

// makeDir creates a directory of the driver and replaces any other file with its name.
func makeDir(path string) error {
	info, err := os.Lstat(path)
	if err == nil && !info.IsDir() {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return os.MkdirAll(path, 0o755)
}

// replaceProgram writes a program to a temporary file, durably, and renames it.
func replaceProgram(path string, data []byte) (err error) {
	const temp = ".new-*"
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), temp)) // left by a driver that was killed
	if err != nil {
		return err
	}
	for _, name := range left {
		if err := ignoreMissing(os.Remove(name)); err != nil {
			return err
		}
	}
	file, err := os.CreateTemp(filepath.Dir(path), temp)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	_, err = file.Write(data)
	if err = errors.Join(err, file.Chmod(helperMode), file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

// linkTo creates a symbolic link and replaces any file with its name.
func linkTo(target, path string) error {
	if now, err := os.Readlink(path); err == nil && now == target {
		return nil
	}
	if info, err := os.Lstat(path); err == nil && info.IsDir() {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	temp := path + ".new"
	if err := ignoreMissing(os.Remove(temp)); err != nil {
		return err
	}
	if err := os.Symlink(target, temp); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
