package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
)

// helperPlugins are the CNI plugins that the helper binary is when it is called by their names.
func helperPlugins() []string { return []string{"netdev"} }

// installHelper puts the helper binary, which lies beside the driver's own, where the container runtime and the driver
// find it on the host, and runs it once: the directory may be mounted without the right to execute. A file that is
// being executed is replaced, never written.
func installHelper(ctx context.Context, dir string) error {
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find the helper binary: %w", err)
	}
	return installHelperFrom(ctx, filepath.Join(filepath.Dir(executable), nodeapi.HelperName), dir)
}

// installHelperFrom writes the helper binary to a directory of the host, which the runtime runs as a hook and
// containers never see, and the names of its plugins beside it. A binary that is there already and equal is left alone:
// a hook may be running it. That it can be run is tried, since a file system with noexec would keep every gated
// container from starting.
func installHelperFrom(ctx context.Context, source, dir string) error {
	data, err := os.ReadFile(source)
	if err != nil {
		return fmt.Errorf("cannot install the helper binary: %w; it belongs beside the driver's binary", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("cannot install the helper binary: %w", err)
	}
	target := filepath.Join(dir, nodeapi.HelperName)
	if old, err := os.ReadFile(target); err != nil || !bytes.Equal(old, data) {
		if err := replaceProgram(target, data); err != nil {
			return fmt.Errorf("cannot install the helper binary: %w", err)
		}
	}
	for _, name := range helperPlugins() {
		if err := linkTo(nodeapi.HelperName, filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("cannot install the CNI plugin %s: %w", name, err)
		}
	}
	var refused *exec.ExitError
	// Without its argument the hook refuses, which shows that it runs.
	if err := exec.CommandContext(ctx, target, nodeapi.GateHookCommand).Run(); !errors.As(err, &refused) {
		return fmt.Errorf("cannot run the helper binary: %w; mount the file system of %s without noexec", err, dir)
	}
	return nil
}

// replaceProgram writes a program beside its place, durably, and renames it.
func replaceProgram(path string, data []byte) (err error) {
	const temp = ".new-*"
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), temp)) // of a driver that was killed here
	if err != nil {
		return err
	}
	for _, name := range left {
		if err := missingIsEmpty(os.Remove(name)); err != nil {
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
	if err = errors.Join(err, file.Chmod(0o755), file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

// linkTo makes a symbolic link, in one step if there is another file of its name.
func linkTo(target, path string) error {
	if now, err := os.Readlink(path); err == nil && now == target {
		return nil
	}
	temp := path + ".new"
	if err := missingIsEmpty(os.Remove(temp)); err != nil {
		return err
	}
	if err := os.Symlink(target, temp); err != nil {
		return err
	}
	return os.Rename(temp, path)
}
