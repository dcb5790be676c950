package vm

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed" // for rxePatch
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// rxePatch is under the kernel's license: see rxe/README.md.
//
//go:embed rxe/rxe.patch
var rxePatch []byte

// ErrNoRXE means that the lab's variant of Soft RoCE cannot be built on this host. Tests that need it are skipped in
// this case.
var ErrNoRXE = errors.New("the lab's Soft RoCE cannot be had here")

const rxeModule = "rdma_rxe.ko"

// buildRXEScript runs in the build root. Its arguments are the kernel's release and the release's first two numbers.
// The module's name in the cache depends on the script and the patch, so a change to either of them causes a new build.
// The patch must apply without fuzz: a hunk applied in the wrong place might compile but be incorrect.
const buildRXEScript = `set -eu
mount -t proc proc /proc # in which objtool looks
ln -s mawk /usr/bin/awk
cd /rxe
tar --extract --xz --file "/usr/src/linux-source-$2.tar.xz" --strip-components=5 "linux-source-$2/drivers/infiniband/sw/rxe"
patch --force --strip=1 --fuzz=0 <rxe.patch
make -s -j "$(nproc)" -C "/lib/modules/$1/build" M=/rxe modules
x86_64-linux-gnu-strip --strip-debug rdma_rxe.ko`

// RXE returns the path of the lab's variant of the kernel module rdma_rxe, whose devices stay with their links when the
// links move to another network namespace (see rxe/README.md). Unless the module is in the cache, RXE builds it from
// Debian's source for the image's kernel, which takes a minute and downloads 250 MB. The error is ErrNoRXE if the
// source cannot be downloaded, or if the module cannot be built on this host. If the patch does not apply to the
// source, RXE returns a different error. Because of its vermagic, the module can be loaded only into this image's
// kernel, and the cache contains one module for each version of the kernel packages.
func (i *Image) RXE(ctx context.Context) (string, error) {
	var kernel kernelVersion
	data, err := os.ReadFile(filepath.Join(i.dir, kernelFile))
	if err == nil {
		err = json.Unmarshal(data, &kernel)
	}
	if err != nil {
		return "", fmt.Errorf("cannot read which kernel the image has: %w", err)
	}
	sum := sha256.Sum256(append([]byte(buildRXEScript), rxePatch...))
	dir := filepath.Join(filepath.Dir(i.dir), fmt.Sprintf("rxe-%s-%s", cmp.Or(kernel.Package, kernel.Release),
		hex.EncodeToString(sum[:])[:16]))
	unlock, err := lock(ctx, dir+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(dir); err != nil {
		if err := i.makeRXE(ctx, dir, kernel); err != nil {
			return "", fmt.Errorf("cannot build Soft RoCE for kernel %s: %w", kernel.Release, err)
		}
	}
	return filepath.Join(dir, rxeModule), nil
}

// makeRXE builds the module in a temporary directory, which is renamed to dir once it is complete.
func (i *Image) makeRXE(ctx context.Context, dir string, kernel kernelVersion) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: only root can build it", ErrNoRXE)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "making-rxe-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }() // no longer needed
	start := time.Now()
	i.printf("fetching the source of kernel %s and a compiler, about 250 MB, once", kernel.Release)
	source := strings.Join(strings.SplitN(kernel.Release, ".", 3)[:2], ".")
	files, err := i.fetchSource(ctx, filepath.Join(tmp, "apt"), kernel, source)
	if err != nil {
		return err
	}
	root := filepath.Join(tmp, "root")
	if err := unpack(ctx, root, files); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(root, "rxe", "rxe.patch"), rxePatch); err != nil {
		return err
	}
	if err := runInRoot(ctx, root, buildRXEScript, kernel.Release, source); err != nil {
		return err
	}
	module, err := os.ReadFile(filepath.Join(root, "rxe", rxeModule))
	if err != nil {
		return err
	}
	built := filepath.Join(tmp, "built")
	if err := writeFile(filepath.Join(built, rxeModule), module); err != nil {
		return err
	}
	i.printf("rxe is built after %.0f s: %s", time.Since(start).Seconds(), dir)
	return os.Rename(built, dir)
}

// fetchSource downloads the module's source and the packages required to build it.
func (i *Image) fetchSource(ctx context.Context, dir string, kernel kernelVersion, source string) ([]string, error) {
	private, err := newApt(ctx, dir, i.mirror, i.parts.suites)
	if err == nil {
		_, err = private.run(ctx, "update")
	}
	if err == nil {
		_, err = private.run(ctx, append([]string{"install", "--download-only", "--target-release",
			i.parts.kernelSuite, "linux-headers-" + kernel.Release + "=" + kernel.Package,
			"linux-source-" + source + "=" + kernel.Package},
			strings.Fields("bash coreutils dash findutils grep make mawk mount patch sed tar xz-utils")...)...)
	}
	if err != nil {
		err = unavailable(ctx, ErrNoRXE, err)
		return nil, fmt.Errorf("%w; if the mirror now has only a later kernel, remove the image %s to use that kernel",
			err, i.dir)
	}
	return private.files()
}

// runInRoot runs a script in a chroot and in its own PID namespace, which is destroyed when the script exits, so that
// hung processes are killed, too. Scripts in the third-party kernel source run as root in the chroot, but have no
// access to this machine's processes or mounts. The only device that they need is /dev/null.
func runInRoot(ctx context.Context, root, script string, args ...string) error {
	for _, name := range []string{"dev", "proc", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mknod(filepath.Join(root, "dev/null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		return fmt.Errorf("%w: cannot make /dev/null in the build root: %w", ErrNoRXE, err)
	}
	cmd := exec.CommandContext(ctx, "/usr/bin/bash", append([]string{"-c", script, "bash"}, args...)...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/sbin:/usr/bin", "HOME=/tmp"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Cloneflags: unix.CLONE_NEWPID,
		Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	// The kernel sends the death signal when the thread that started the process exits, so this thread must not exit.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	output, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(output))
	}
	return nil
}
