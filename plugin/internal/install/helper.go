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

// HelperPlugins returns the names of the CNI plugins in the helper binary.
func HelperPlugins() []string { return []string{"device-only", "netdev"} }

const helperMode fs.FileMode = 0o755

// Helper installs the helper binary on the host. It is not safe for concurrent use.
type Helper struct {
	source, dir string
	// verified is the state of the binary when it was last compared with the source and run successfully.
	verified unix.Stat_t
}

// NewHelper returns the component that installs the helper binary in dir. The source binary must be in the same
// directory as the driver's own binary.
func NewHelper(dir string) (*Helper, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot find the helper binary: %w", err)
	}
	return &Helper{source: filepath.Join(filepath.Dir(executable), nodeapi.HelperName), dir: dir}, nil
}

// Install writes the helper binary to its directory on the host, where the runtime runs it as a hook and which is not
// visible to containers, and creates links to the binary under the names of its plugins. It does not touch files that
// are correct, because a hook may be running the binary. If all files are correct, Install costs only a few system
// calls, so it can be called often.
//
// Everything in the directory belongs to the driver, so any file that is in the way is removed. This includes symbolic
// links, which may point to different files on the host and in the driver's container.
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
	// The file's state does not reflect this: the file system may have been remounted with noexec.
	if err := unix.Access(target, unix.X_OK); err != nil {
		return notRunnable(h.dir, err)
	}
	if now := state(target); now != h.verified {
		var refused *exec.ExitError
		// The hook fails without its second argument, but the failure proves that the binary can run.
		err := exec.CommandContext(ctx, target, nodeapi.GateHookCommand).Run()
		if err == nil {
			err = errors.New("it accepts an invalid call, so it is a different program")
		}
		if !errors.As(err, &refused) {
			return notRunnable(h.dir, err)
		}
		h.verified = now
	}
	return nil
}

func notRunnable(dir string, err error) error {
	remedy := "check that the driver's image is for the architecture of the node"
	if errors.Is(err, os.ErrPermission) {
		remedy = "mount its file system without noexec"
	}
	return fmt.Errorf("cannot run the driver's helper programs in %s, so no pod with claims starts: %w; %s", dir, err,
		remedy)
}

// write durably replaces the binary unless it is a regular executable file with the same content as the source.
func (h *Helper) write(target string) error {
	data, err := os.ReadFile(h.source)
	if err != nil {
		return fmt.Errorf("%w; it must be in the directory of the driver's binary", err)
	}
	if info, err := os.Lstat(target); err == nil && info.Mode() == helperMode {
		if old, err := os.ReadFile(target); err == nil && bytes.Equal(old, data) {
			return nil
		}
	}
	return replace(target, func(temp string) error {
		file, err := os.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = file.Write(data)
		return errors.Join(err, file.Chmod(helperMode), file.Sync(), file.Close())
	})
}

// state returns a value that identifies a file and its content: the value changes with every write and every mode
// change. It is zero if the file does not exist. It omits the access time, which the kernel updates when the file is
// executed.
func state(path string) unix.Stat_t {
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil {
		return unix.Stat_t{}
	}
	stat.Atim = unix.Timespec{}
	return stat
}

// makeDir creates a driver directory and replaces any other kind of file with the same name.
func makeDir(path string) error {
	info, err := os.Lstat(path)
	if err == nil && !info.IsDir() {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return os.MkdirAll(path, 0o755)
}

// linkTo creates a symbolic link and replaces any file with the same name.
func linkTo(target, path string) error {
	if now, err := os.Readlink(path); err == nil && now == target {
		return nil
	}
	return replace(path, func(temp string) error { return os.Symlink(target, temp) })
}

// replace atomically replaces any file or directory with a file that create creates in a temporary directory. The name
// of that directory is unique because a driver that is being replaced may still be running.
func replace(path string, create func(temp string) error) (err error) {
	const pattern = ".new-*"
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), pattern)) // left behind by a killed driver
	if err != nil {
		return err
	}
	for _, name := range left {
		if err := os.RemoveAll(name); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), pattern)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	temp := filepath.Join(dir, filepath.Base(path))
	if info, err := os.Lstat(path); err == nil && info.IsDir() {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	if err := create(temp); err != nil {
		return err
	}
	return os.Rename(temp, path)
}
